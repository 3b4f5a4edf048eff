"""Evaluation: metrics, statistics, and the one-file report.

For example:

    from veloxseg.evaluate import evaluate_folder, write_report
    write_report(evaluate_folder("predictions", "labels"), "report")
"""

from veloxseg.evaluate.evaluate import evaluate_folder
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.metrics import dice
from veloxseg.evaluate.report.page import write_report

__all__ = ["Evaluation", "dice", "evaluate_folder", "write_report"]
