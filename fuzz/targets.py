"""All targets by name."""

from fuzz import configs, folders, graphs, hostile, requests, tables

TARGETS = {
    target.name: target
    for target in (
        *tables.TARGETS,
        *configs.TARGETS,
        *folders.TARGETS,
        *graphs.TARGETS,
        *hostile.TARGETS,
        *requests.TARGETS,
    )
}
