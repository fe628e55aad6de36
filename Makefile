# Everything starts with the virtual environment; every target makes it first. Needs Python 3.11+, make and pip.
PYTHON ?= python3
BIN := .venv/bin
# Where the environment says not to, every interpreter that a test starts would compile the whole package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test suite quick audit bench lint study keys papers pictures growth clean

.venv: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch .venv/installed

demo: .venv
	$(BIN)/rackmodel compare rack_paper ffn data tensor pipeline_tensor --set accelerators=32 -o out/demo
	@echo "charts: out/demo/energy.png, energy.svg, energy.html"

# Types are checked beside the suite: each of them leaves a core idle for a while.
test: .venv
	$(MAKE) --no-print-directory -j 2 lint suite

suite: .venv
	$(BIN)/pytest -n 2 --dist worksteal --durations=15

# Under a minute, for every change: what is read, derived, priced and placed, small searches and nests, carbon and reports, by files whose
# tests are quick. What searches claim (certificates, fronts, limits, cuts) and the cases of the review are in `make test`, which is all.
QUICK := accelerators docs embodied hardwired import inputs_overrides inputs_read inputs_yaml kernels layout_facts layout_rules \
  mapper_check money nest_trades network operational_carbon pipeline placement pricing relays report specs store \
  structure systems topologies vectors way_out writing
QUICK_NESTS := canonical evaluate

quick: .venv lint
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK:%=tests/test_%.py) $(QUICK_NESTS:%=tests/nests/test_nest_%.py)

# Minutes to hours: members of random spaces against what searches claim, mutated inputs, changes of known effect (tests/audit).
audit: .venv
	$(BIN)/python -m tests.audit $(AUDIT)
	$(if $(AUDIT),,SAMPLES=all $(BIN)/pytest -n 2 --dist worksteal $(shell grep -l 'samples\.' tests/test_*.py tests/nests/test_*.py))

bench: .venv
	$(BIN)/pytest -m bench -s

lint: .venv
	$(BIN)/ruff check rackmodel tests
	$(BIN)/ruff format --check -q rackmodel tests
	$(BIN)/mypy

study: .venv
	$(BIN)/rackmodel sweep rack_paper -o out/rack_paper

# Schemas and the reference of keys in docs/, after a key has changed.
keys: .venv
	$(BIN)/rackmodel schema -o docs/schemas
	$(BIN)/rackmodel schema --keys > docs/keys.md

# docs/papers.md: every study over the ranges of its inputs, but for those of loop nests and of spaces, which are asked as the files are:
# their points take minutes each. A study that has run is kept in out/papers.
STUDIES := rack_paper row_pipeline iso_compute wafer_carbon wafer_vs_gpu weight_streaming hardwired hnlpu_tco act embodied \
  train_carbon training_energy calculon gemm_published rack_paper_nests

PLAIN := calculon gemm_published rack_paper_nests

papers: $(STUDIES:%=out/papers/%.json)
	$(BIN)/python -m tests.papers_page docs/papers $^ > docs/papers.md
	$(BIN)/python -m tests.golden_rows $^ > docs/golden_rows.md

out/papers/%.json: | .venv
	@mkdir -p out/papers
	$(BIN)/rackmodel sweep $* $(if $(filter $*,$(PLAIN)),,--ranges) --json > $@.part
	mv $@.part $@

# The page of results as docs/ shows it; needs Chromium.
pictures: .venv
	$(BIN)/python -m tests.pictures

# How search time grows, as docs/growth.md shows it; a few minutes.
growth: .venv
	$(BIN)/python -m tests.growth

clean:
	rm -rf out .venv build *.egg-info
