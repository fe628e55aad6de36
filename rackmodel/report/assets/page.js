// The page of results: what it shows is in it.

listen();
const GIVEN = JSON.parse(document.getElementById("data").textContent);
show(GIVEN.results);
fronts(GIVEN.fronts);
