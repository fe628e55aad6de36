# Everything starts with the virtual environment; every target makes it first. Needs Python 3.11+, make and pip.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test bench lint study clean

.venv: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch .venv/installed

demo: .venv
	$(BIN)/rackmodel compare rack_paper ffn data tensor pipeline_tensor --set accelerators=32 -o out/demo
	@echo "charts: out/demo/energy.png, energy.svg, energy.html"

test: .venv lint
	$(BIN)/pytest -n 2

bench: .venv
	$(BIN)/pytest -m bench -s

lint: .venv
	$(BIN)/ruff check rackmodel tests
	$(BIN)/mypy

study: .venv
	$(BIN)/rackmodel sweep rack_paper -o out/rack_paper

clean:
	rm -rf out .venv build *.egg-info
