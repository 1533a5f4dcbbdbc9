"""Reports: the paper's numbers beside measured ones, as one page and as files of each table."""

from grass_gnn.report.page import write_report

__all__ = ["write_report"]
