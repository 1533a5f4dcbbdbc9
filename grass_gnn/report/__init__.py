"""Reports of runs and of the paper's tables, as one page and as files."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "page": ("write_report",),
    },
)
