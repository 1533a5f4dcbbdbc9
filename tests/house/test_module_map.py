"""The module map agrees with the code."""

from tools.module_map import PACKAGE, PAGE, layers, page


def test_the_map_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(), "The code has changed: run `make modules`."


def test_every_folder_and_file_says_what_it_is_for():
    text = page()
    for name in layers():
        assert f"### {name}" in text
    for file in PACKAGE.rglob("*.py"):
        if file.name.startswith("_"):
            continue
        assert f"| `{file.name}` | " in text or f"### {file.name}\n" in text, file
    assert "|  |" not in text and "\n.\n" not in text, "a file or folder without a docstring"


def test_no_folder_of_the_package_is_left_out():
    text = page()
    folders = {file.parent for file in PACKAGE.rglob("*.py")} - {PACKAGE}
    for folder in folders:
        assert f"## {folder.relative_to(PACKAGE).as_posix()}\n" in text
