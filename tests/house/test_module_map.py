"""The map of the code, held against the code."""

from tools.module_map import PACKAGE, PAGE, layers, page


def test_the_map_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(), "The code has changed: run `make modules`."


def test_every_folder_and_file_says_what_it_is_for():
    text = page()
    for name in layers():
        assert f"### {name}" in text
    files = [file for file in PACKAGE.rglob("*.py") if not file.name.startswith("_")]
    assert len(files) > 100
    assert text.count("\n| `") + text.count(".py\n\n") >= len(files)
    assert "|  |" not in text, "a file without a docstring"
