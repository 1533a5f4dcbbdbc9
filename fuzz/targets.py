"""All targets by name."""

from fuzz import configs, folders, graphs, tables

TARGETS = {
    target.name: target
    for target in (*tables.TARGETS, *configs.TARGETS, *folders.TARGETS, *graphs.TARGETS)
}
