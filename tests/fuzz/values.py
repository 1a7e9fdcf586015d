"""Values that an option, a file or a message should not have, and random changes of texts and of JSON."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np

NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "64", "1000", "1_000", "1e3", "1e6", "1e12", "1e30", "1e400", "-1e400", "1e-320"),
    *("-0.0", "0.5", "-0.5", "1.5", ".5", "5.", "0x10", "0b1", "0o7", "1e", "--1", "+1", "١", "½", "nan", "inf"),
    *("-inf", "Infinity", "NaN", "2147483648", "9223372036854775807", "9223372036854775808", "9" * 400, "9" * 5000),
)
WORDS = (
    *("", " ", "null", "None", "none", "true", "false", "True", "yes", "off", "~", "a", "auto", "relu", "mlp", "gru"),
    *(
        "mappo",
        "ippo",
        "iql",
        "random",
        "frozen",
        "scripted",
        "agent",
        "agent_0",
        "adversary",
        "cpu",
        "cuda",
        "cuda:99",
    ),
    *(
        "mpe/simple",
        "mpe/simple_tag",
        "../../etc/passwd",
        "/dev/zero",
        "~root",
        "a:b",
        "os:system",
        "a b",
        "a,b",
        "it's",
    ),
    *("né 東", "\u202e", "\x00", "\x1b[31m", "\ufeff", "a" * 300, "a" * 100_000, "<b>", "%s", "{0}", "$(id)", "`id`"),
)
BRACKETS = (
    *("[]", "{}", "[1]", "[1,2]", "[[1]]", "[64,64]", "[-1]", "[0]", "[1e9]", "[1,a]", "[null]", "{a:1}", "{a:{b:1}}"),
    *("[" * 25 + "]" * 25, "[" * 400 + "]" * 400, "{a:" * 25 + "1" + "}" * 25, "[" + "1," * 3000 + "1]", "[", "]", "{"),
    *(
        "}",
        "[1,",
        "{a",
        "{a:",
        "(1)",
        "{name:mlp}",
        "{name:a:b}",
        "{agent:{name:mlp}}",
        "{agent:mlp}",
        "{1:2}",
        "{a:1,a:2}",
    ),
)
GRAMMAR = (
    *("${seed}", "${n_envs}", "${algorithm.lr}", "${oc.env:HOME}", "${oc.decode:1}", "${a}", "${", "${}", "${${seed}}"),
    *("${algorithm}", "${env}", "${groups}", "${model.hidden}", "[${seed},${frames}]", "${oc.select:frames}", "${.lr}"),
    *("${oc.dict.values:env}", "${oc.dict.keys:model}", "${now:%Y}", "${hydra:job.name}", "${oc.env:MARLNB_NO,3}"),
    "[" + ",".join(["${seed}"] * 300) + "]",
    *(
        "1,2",
        "range(1,5)",
        "choice(1,2)",
        "interval(0,1)",
        "sort(3,1)",
        "shuffle(1,2)",
        "int(1.5)",
        "float(1)",
        "str(1)",
    ),
    *(
        "json_str({a:1})",
        "glob(*)",
        "extend_list(1)",
        "'",
        '"',
        "'a",
        '"a"',
        "'a'",
        "\\",
        "a\\",
        "\\,",
        "#",
        "a#b",
        "=",
        "==",
    ),
)
MILD = ("1", "2", "4", "0.5", "1e-3", "10", "100", "true", "false", "null", "[8]", "[8,8]", "tanh", "relu", "mlp", "0")
TEXTS = (*NUMBERS, *WORDS, *BRACKETS, *GRAMMAR)
JSON_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        2**31,
        2**53,
        2**63,
        2**64,
        -(2**63),
        10**30,
        10**400,
        0.0,
        -0.0,
        0.5,
        -1.5,
        1e30,
    ),
    *(
        1e308,
        float("inf"),
        float("-inf"),
        float("nan"),
        "",
        "a",
        "agent",
        "1",
        "Infinity",
        "NaN",
        "né 東",
        "\x00",
        "\ud800",
    ),
    *("<script>", "a" * 10_000, [], {}, [[]], [1], ["a"], [None], {"a": 1}, {"": {}}, {"name": "mlp"}, {"name": "a:b"}),
    *(
        {"name": "evil:Env"},
        {"$tensor": 0},
        {"$tensor": -1},
        {"$tensor": 10**9},
        {"$float": "nan"},
        {"$dict": [[1, 2]]},
    ),
    *(
        {"$tuple": []},
        {"$dict": [[[], 1]]},
        {"$tensor": "a"},
        {"$float": "x"},
        [1, "a"],
        [{}],
        {"a": [None]},
        [10**400],
    ),
)
DEPTHS = (30, 300, 3000)
Generator = np.random.Generator


def pick(generator: Generator, items: Any) -> Any:
    return items[int(generator.integers(len(items)))]


def any_text(generator: Generator) -> str:
    """A value as text: mostly one that many options accept."""
    return str(pick(generator, MILD if generator.random() < 0.7 else TEXTS))


def value_like(default: Any, generator: Generator) -> str:
    """A value as text: half of them like the one that is given, so that many are accepted."""
    if generator.random() < 0.5:
        return any_text(generator)
    if isinstance(default, bool):
        return str(pick(generator, ("true", "false")))
    if isinstance(default, int):
        return str(pick(generator, (default, default + 1, 2 * default, default // 2, 1, 2)))
    if isinstance(default, float):
        return f"{default * pick(generator, (0.5, 0.9, 1.0, 1.1, 2.0)):g}"
    if isinstance(default, tuple):
        return str(pick(generator, ("[8]", "[8,8]", "[]")))
    return default if isinstance(default, str) and default else str(pick(generator, ("4", "0.5", "null", "[8]")))


def changed_text(text: str, generator: Generator, alphabet: tuple[str, ...] = TEXTS) -> str:
    """A text with one part removed, doubled, exchanged with another part, or replaced by a strange one."""
    start = int(generator.integers(len(text) + 1))
    stop = min(len(text), start + int(generator.integers(1, 9)))
    kind = pick(generator, ("cut", "double", "insert", "replace", "move"))
    part = text[start:stop]
    if kind == "cut":
        return text[:start] + text[stop:]
    if kind == "double":
        return text[:stop] + part + text[stop:]
    if kind == "move":
        rest = text[:start] + text[stop:]
        place = int(generator.integers(len(rest) + 1))
        return rest[:place] + part + rest[place:]
    return text[:start] + pick(generator, alphabet) + text[stop if kind == "replace" else start :]


def changed_bytes(content: bytes, generator: Generator) -> bytes:
    """Bytes with a few of them flipped, removed, doubled or replaced, or cut off."""
    data = bytearray(content)
    start, size = int(generator.integers(len(data) + 1)), int(generator.integers(1, 33))
    kind = pick(generator, ("flip", "set", "cut", "double", "insert", "truncate", "empty"))
    if kind == "flip" and data:
        data[start % len(data)] ^= 1 << int(generator.integers(8))
    elif kind == "set":
        data[start : start + size] = generator.bytes(size)
    elif kind == "cut":
        del data[start : start + size]
    elif kind == "double":
        data[start:start] = data[start : start + size]
    elif kind == "insert":
        data[start:start] = generator.bytes(size)
    elif kind == "truncate":
        del data[start:]
    else:
        data.clear()
    return bytes(data)


def changed_json(value: Any, generator: Generator) -> Any:
    """JSON in which one value, at any depth, is replaced, removed, renamed, doubled or exchanged with another."""
    root = copy.deepcopy([value])
    places = [(parent, key) for parent, key in _places(root) if parent is not root] or [(root, 0)]
    parent, key = pick(generator, places)
    kind = pick(generator, ("value", "value", "value", "remove", "rename", "wrap", "swap", "nest"))
    if kind == "remove" and parent is not root:
        del parent[key]
    elif kind == "rename" and isinstance(parent, dict):
        parent[pick(generator, ("", "a", "name", "né", key + "x", key[:-1]))] = parent.pop(key)
    elif kind == "wrap":
        parent[key] = pick(generator, ([parent[key]], {"a": parent[key]}, [parent[key]] * 2))
    elif kind == "swap":
        other, other_key = pick(generator, places)
        parent[key] = copy.deepcopy(other[other_key])
    elif kind == "nest":
        parent[key] = f"nested {pick(generator, DEPTHS)}"
    else:
        parent[key] = pick(generator, JSON_VALUES)
    return root[0]


def json_bytes(value: Any) -> bytes:
    """JSON as a file holds it, where "nested 300" stands for lists within each other."""
    text = json.dumps(value)
    for depth in DEPTHS:
        text = text.replace(f'"nested {depth}"', "[" * depth + "1" + "]" * depth)
    return text.encode("utf-8", errors="surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    places = [(value, key) for key, _ in items]
    for _, item in items:
        if isinstance(item, (dict, list)) and item:
            places += _places(item)
    return places
