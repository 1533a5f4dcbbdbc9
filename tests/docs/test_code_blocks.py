"""Every code block of README and of the documentation runs, or says why it cannot."""

import json
import tomllib
from pathlib import Path

import pytest
from page_blocks import ROOT, Block, all_pages, read_blocks
from shell_lines import OURS, check_other, parse, run, split_environment

SHOWN = {"text", "csv"}  # outputs and files, for people to read
PAGES = [page for page in all_pages() if read_blocks(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of(page: Path, working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in read_blocks(page.read_text("utf-8")):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        try:
            if block.language == "bash":
                with monkeypatch.context() as patch:
                    run_shell(block, patch)
            elif not block.illustrative:
                check_block(block, names, page)
        except Exception as error:
            error.add_note(f"In the block of {where}:\n{block.text}")
            raise


def run_shell(block: Block, patch: pytest.MonkeyPatch) -> None:
    """Run our commands and check others; illustrative ones of ours must be valid, too."""
    for line in block.commands():
        variables, words = split_environment(line)
        if words and words[0] in OURS:
            for name, value in variables.items():
                patch.setenv(name, value)
            (parse if block.illustrative else run)(words[1:])
        elif words and not block.illustrative:
            check_other(words)


def check_block(block: Block, names: dict[str, object], page: Path) -> None:
    if block.language == "python":
        padding = "\n" * (block.line - 1)  # tracebacks then have the line of the page
        exec(compile(padding + block.text, str(page), "exec"), names)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    else:
        assert block.language in SHOWN, (
            f"a block of {block.language or 'no language'} is neither run nor marked: "
            "fence it as python, bash or text, or put <!-- illustrative: REASON --> above it"
        )


def test_what_is_wrong_with_a_block_is_noticed(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "<!-- illustrative: needs a GPU -->\n"
    found = read_blocks(f"text\n\n{shown}```bash\ngrass-gnn train x\n```\n\n    indented\n")
    assert [(one.language, one.illustrative, one.line) for one in found] == [
        ("bash", True, 5),
        ("indented", False, 8),
    ]
    for wrong in (
        "grass-gnn train molecules.csv --targets logS",  # no such option
        "grass-gnn trian molecules.csv",
        "grass-gnn predict runs/solubility",  # the table is missing
        "grass-gnn predict runs/nothing new.csv -o out.csv",
        "make nothing",
        "pip install 'grass-gnn[nothing]'",
        "python benchmarks/nothing.py",
        "python benchmarks/steps.py zinc --nothing",
        "torchrun train.py",
    ):
        with pytest.raises(Exception, match=r"\w"):
            run_shell(Block("bash", wrong, 1), monkeypatch)
    with pytest.raises(Exception, match="targets"):
        run_shell(Block("bash", "grass-gnn train a.csv --targets b", 1, True), monkeypatch)
    for language in ("indented", "", "sh"):
        with pytest.raises(AssertionError, match="illustrative"):
            check_block(Block(language, "x = 1", 1), {}, Path("page.md"))
    with pytest.raises(NameError):
        check_block(Block("python", "x + 1", 1), {}, Path("page.md"))
