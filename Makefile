PYTHON ?= python3
BIN := .venv/bin
LOCK_FLAGS := --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.12 --quiet

.PHONY: env up test check lock screenshots

env: .venv/runtime

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
		{ echo "Forge needs Python 3.12 or newer; set PYTHON=…, as in: make env PYTHON=python3.13"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/runtime: requirements.lock .venv/bin/python
	@if command -v uv >/dev/null 2>&1; then uv pip sync --quiet --require-hashes --python $(BIN)/python requirements.lock; \
	else $(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock; fi
	@rm -f .venv/development
	@touch $@

.venv/development: requirements-dev.lock .venv/runtime
	@if command -v uv >/dev/null 2>&1; then uv pip sync --quiet --require-hashes --python $(BIN)/python requirements-dev.lock; \
	else $(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock; fi
	@touch $@

up: .venv/runtime
	@exec $(BIN)/python manage.py up

test: .venv/development
	$(BIN)/python -m pytest --database sqlite
	$(BIN)/python -m pytest --database postgresql

check: .venv/development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

lock:
	uv pip compile $(LOCK_FLAGS) pyproject.toml -o requirements.lock
	uv pip compile $(LOCK_FLAGS) --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock
