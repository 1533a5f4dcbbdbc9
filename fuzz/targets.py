"""All targets by name."""

from fuzz import configs, folders, formats, graphs, hostile, requests, tables

TARGETS = {
    target.name: target
    for target in (
        *tables.TARGETS,
        *formats.TARGETS,
        *configs.TARGETS,
        *folders.TARGETS,
        *graphs.TARGETS,
        *hostile.TARGETS,
        *requests.TARGETS,
    )
}
