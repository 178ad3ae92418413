# A Python that is new enough: `python3` if it is, else one that is installed beside it.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 12))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && { echo $$p; exit; }; done; echo python3)
BIN := .venv/bin
UV := $(shell uv --version >/dev/null 2>&1 && echo uv)
ifdef UV
INSTALL = uv pip sync --quiet --require-hashes --python $(BIN)/python
else
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r
endif
LOCK_FLAGS := --all-extras --group forge --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.12 --quiet

.PHONY: env up test check lock messages screenshots
.DELETE_ON_ERROR:

env: .venv/runtime

# Made anew where its Python is gone, as after an upgrade of the system.
ifneq ($(shell $(BIN)/python -c 'import pip' 2>/dev/null && echo usable),usable)
.PHONY: .venv/made
endif
# Touched last, so that what an interrupt left half done is begun again.
.venv/made:
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo "Forge needs Python 3.12 or newer, not: $$($(PYTHON) --version 2>&1)."; \
		echo "Install one (Debian 13: apt-get install python3 python3-venv) and say which, as in: make env PYTHON=python3.13"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make environments."; \
		echo "Install its venv module (Debian: apt-get install python3-venv), then try again."; exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/runtime: requirements.lock .venv/made
	@echo "Installing what Forge runs on …"
	@$(INSTALL) requirements.lock
	@rm -f .venv/development
	@touch $@

.venv/development: requirements-dev.lock .venv/runtime
	@echo "Installing what its tests and checks need …"
	@$(INSTALL) requirements-dev.lock
	@touch $@

# ARGS are passed on, as in: make up ARGS="--port 9000"   make test ARGS="-x -k import"
up: .venv/runtime
	@exec $(BIN)/python manage.py up $(ARGS)

test: .venv/development
	$(BIN)/python -m pytest --database sqlite $(ARGS)
	$(BIN)/python -m pytest --database postgresql $(ARGS)

check: .venv/development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

lock:
	@uv --version >/dev/null || { echo "Locking needs uv."; exit 1; }
	uv pip compile $(LOCK_FLAGS) pyproject.toml -o requirements.lock
	uv pip compile $(LOCK_FLAGS) --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock

# Gathers what is to be translated, and compiles what is; needs gettext (Debian: apt-get install gettext).
messages: .venv/runtime
	$(BIN)/python manage.py makemessages --locale fr --extension html,txt,py --add-location file \
		--no-obsolete --ignore tests --ignore examples --ignore data
	@# When it was gathered says nothing, and is a conflict in every merge.
	sed -i '/^"POT-Creation-Date:/d' locale/fr/LC_MESSAGES/django.po jobs/engine/locale/fr/LC_MESSAGES/django.po
	$(BIN)/python manage.py compilemessages --locale fr --ignore .venv

# Every page in ./screenshots/, and the picture in the README.
screenshots: .venv/development
	$(BIN)/python -m tests.screenshots
