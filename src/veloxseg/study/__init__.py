"""The paper's tables as commands: `tables.py` says what is trained, `run.py` trains it, `page.py` shows it."""
