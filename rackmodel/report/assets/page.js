// The page of results: what it shows is in it.

listen();
show(JSON.parse(document.getElementById("data").textContent).results);
