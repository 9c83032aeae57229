"""Imports follow the way of the data: every module of the package is read and held against the map of rooms."""

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "driftlaw"

GROUND = {"errors", "places", "settings", "files", "npm_packages", "processor"}
"""Below every room: anybody may import them, they import nothing but each other."""

DOOR = "driftlaw"
"""The public door, ``driftlaw/__init__.py``: opens into every room, only when somebody goes through it."""

RANKS = (
    {name: set() for name in sorted(GROUND)},
    {
        "contract": set(),
        "datasets": set(),
        "corruptions": set(),
        "models": set(),
        "ingredients": set(),
        "records": set(),
        "probes": set(),
        "checkpoints": set(),
    },
    {
        "streams": {"contract", "corruptions", "datasets"},
        "adapters": {"contract", "ingredients"},
        "reports": {"records"},
        "measures": {"contract", "probes"},
    },
    {
        "loop": {"contract", "records", "probes", "models", "checkpoints", "measures"},
        "training": {"datasets", "models", "records", "probes", "checkpoints"},
    },
    {
        "experiments": {
            *("loop", "streams", "adapters", "models", "records", "reports"),
            *("contract", "corruptions", "datasets", "ingredients", "probes"),
        },
        "bench": {
            *("loop", "adapters", "models", "corruptions", "probes", "records"),
            *("contract", "datasets", "ingredients"),
        },
        "serving": {"adapters", "contract", "records"},
        "lightning": {"adapters", "contract"},
        "checks": {"contract", "models", "loop", "adapters"},
        "export": {"adapters", "contract", "ingredients", "models"},
    },
)
"""Rank by rank from the ground up: a room, and the rooms it may import besides itself and the ground."""

MAY_IMPORT = {room: allowed for rank in RANKS for room, allowed in rank.items()}
FREE = {"cli", "__main__"}
"""May import every room, and go through the door."""

EXCEPTIONS: set[tuple[str, str]] = set()
"""(module, what it imports all the same): empty, and to stay so."""

OUTSIDE = {
    "contract": {"torch"},
    "datasets": {"numpy", "PIL"},
    "corruptions": {"torch", "numpy", "PIL"},
    "models": {"torch", "safetensors"},
    "ingredients": {"torch"},
    "records": {"numpy"},
    "probes": {"torch", "numpy"},
    "checkpoints": {"torch"},
    "reports": {"numpy", "jinja2", "markupsafe", "matplotlib", "rich"},
    "export": {"torch", "onnx", "onnxruntime"},
    "lightning": {"torch", "lightning", "pytorch_lightning"},
    "errors": set(),
    "places": set(),
    "settings": set(),
    "files": set(),
}
"""What of other people's a room may import, where the map says so."""

CORE = {
    "torch", "numpy", "PIL", "safetensors", "pydantic", "typer", "rich", "jinja2", "markupsafe", "matplotlib",
}  # fmt: skip
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc"}
TORCH_FREE = [
    "driftlaw",
    "driftlaw.records",
    "driftlaw.reports",
    "driftlaw.datasets",
    "driftlaw.cli",
    *(f"driftlaw.{name}" for name in sorted(GROUND)),
]


@dataclass(frozen=True)
class Import:
    """One imported module, the name taken from it (if any), and where it stands."""

    target: str
    name: str | None
    line: int
    at_once: bool

    @property
    def top(self):
        return self.target.partition(".")[0]

    @property
    def room(self):
        """The room of the package it leads into; the door, where it names none."""
        parts = self.target.split(".")
        if len(parts) > 1:
            return parts[1]
        return self.name if self.name and is_room(self.name) else DOOR


def is_room(name):
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(module):
    return module.split(".")[1] if "." in module else DOOR


def imports_of(path):
    """Return every import of a file, those inside functions and of literal names by importlib included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {id(node) for function in ast.walk(tree) if is_late(function) for node in ast.walk(function)}
    return [found for node in ast.walk(tree) for found in read(node, at_once=id(node) not in late)]


def is_late(node):
    """Tell whether what stands in a node waits: for a call, or for a type checker."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def read(node, at_once):
    if isinstance(node, ast.Import):
        return [Import(alias.name, None, node.lineno, at_once) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"a relative import in line {node.lineno}: rooms are named in full"
        return [Import(node.module, alias.name, node.lineno, at_once) for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "importlib.import_module",
        "import_module",
        "__import__",
    ):
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return [Import(first.value, None, node.lineno, at_once)]
    return []


IMPORTS = {module: imports_of(path) for module, path in MODULES.items()}


def is_forbidden(module, found):
    """Tell whether the map of rooms forbids an import."""
    room = room_of(module)
    if found.top != "driftlaw" or room in FREE or (module, found.target) in EXCEPTIONS:
        return False
    if room == DOOR:
        return found.at_once and found.room not in GROUND
    if found.room == DOOR:
        return found.name != "__version__"  # the version is no room; all else behind the door could lead anywhere
    return found.room not in {room} | MAY_IMPORT[room] | GROUND


def told(module, found):
    return (
        f"{MODULES[module].relative_to(PACKAGE.parent)}:{found.line} imports {found.target} {found.name or ''}".rstrip()
    )


def offences(wrong):
    return [told(module, found) for module, imports in IMPORTS.items() for found in imports if wrong(module, found)]


def test_every_room_has_a_place_on_the_map():
    assert {room_of(module) for module in MODULES} - {DOOR} - FREE <= set(MAY_IMPORT)


def test_the_map_leads_down_never_up_nor_sideways():
    rank_of = {room: number for number, rank in enumerate(RANKS) for room in rank}
    assert set(RANKS[0]) == GROUND
    assert all(rank_of[below] < rank_of[room] for room, allowed in MAY_IMPORT.items() for below in allowed)


def test_rooms_import_what_the_map_allows():
    assert offences(is_forbidden) == []


def test_there_are_no_exceptions():
    assert not EXCEPTIONS


def test_no_method_imports_another():
    def wrong(module, found):
        return module.startswith("driftlaw.methods.") and found.target.startswith("driftlaw.methods")

    assert offences(wrong) == []


def test_nothing_private_crosses_a_wall():
    def wrong(module, found):
        parts = [*found.target.split("."), *([found.name] if found.name else [])]
        private = any(part.startswith("_") and not part.startswith("__") for part in parts)
        return found.top == "driftlaw" and private and found.room != room_of(module)

    assert offences(wrong) == []


def test_rooms_import_of_others_what_the_map_allows():
    def wrong(module, found):
        known = set(sys.stdlib_module_names) | {"driftlaw"}
        # The settings of every room are pydantic's, through the ground.
        return found.top not in known | {"pydantic"} | OUTSIDE.get(room_of(module), CORE)

    assert offences(wrong) == []


def test_commands_import_torch_only_when_they_run():
    assert offences(lambda module, found: room_of(module) == "cli" and found.top == "torch" and found.at_once) == []


def test_rooms_without_torch_stay_without_it():
    probe = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: sys.exit(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *TORCH_FREE], capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert done.returncode == 0, f"torch came in with {done.stderr}"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_name_that_says_something_and_opens_with_a_line_about_itself(module):
    assert not NAMELESS & set(module.split("."))
    docstring = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    assert docstring, f"{module} opens without a docstring"
    first, *rest = docstring.splitlines()
    assert len(first) > 10
    assert not rest or rest[0] == "", f"{module}: the first line of its docstring stands alone"


def test_the_reader_sees_imports_wherever_they_hide(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(
        "import driftlaw.evaluation.evaluator\n"
        "from driftlaw import models, __version__\n"
        "if TYPE_CHECKING:\n    from driftlaw.streams import make_stream\n"
        "class A:\n    def f(self):\n        from driftlaw.base import _methods\n"
        "        importlib.import_module('driftlaw.cli')\n"
    )
    found = {(each.room, each.name, each.at_once) for each in imports_of(path)}
    assert found == {
        ("loop", None, True),
        ("models", "models", True),
        (DOOR, "__version__", True),
        ("streams", "make_stream", False),
        ("contract", "_methods", False),
        ("cli", None, False),
    }


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("driftlaw.methods.law", Import("driftlaw.streams", "make_stream", 1, False)),
        ("driftlaw.records.jsonl", Import("driftlaw.base", None, 1, True)),
        ("driftlaw.models.load", Import("driftlaw", "datasets", 1, True)),
        ("driftlaw.errors", Import("driftlaw.records", None, 1, False)),
        ("driftlaw.serving.app", Import("driftlaw", "adapt", 1, False)),
        ("driftlaw.streams.ordering", Import("driftlaw", None, 1, True)),
        ("driftlaw", Import("driftlaw.base", "Adapter", 1, True)),
    ],
)
def test_a_wrong_import_would_be_caught(module, found):
    assert is_forbidden(module, found)
