"""No word that the glossary retired is left in code, messages or documentation.

Only the glossary may spell a retired word, to say that it is not used. `WORDS` are matched everywhere, in prose too.
A word that is also plain English ("it makes a copy") is in `IDENTIFIERS`: the attribute, parameter or class that was
retired, as it is written in code (`.makes`, `draws=`, `class Rule`).
"""

import re
from pathlib import Path

from tests.together import together

ROOT = Path(__file__).parent.parent
SOURCES = [path for ending in ("py", "pyi", "pyx", "pxd") for path in sorted(ROOT.glob(f"pydispatch/**/*.{ending}"))]
PAGES = [path for path in sorted(ROOT.glob("docs/*.md")) if path.name != "glossary.md"] + [ROOT / "README.md"]

WORDS = [
    "LevelTensor", "NamedRule", "ContextRule", "VmappedRule", "RuleNode", "MissingRule", "described_level",
    "enter_level", "leave_level", "at_level", "state_at_level", "call_through_levels", "attach_rule", "apply_rule",
    "record_rule", "release_rule", "slot_kind", "saved0", "MAX_SLOTS", "is_container_type", "count_write",
    "total_writes", "counter_of", "participants", "MAX_PARTICIPANTS", "find_participants", "muted", "is_muted",
    "mute_modes", "author", "authors", "Author", "somebody", "Somebody", "anybody", "nobody", "Nobody", "everybody",
    "whoever", "Whoever", "settle", "settled", "settle_rule", "is_settled", "settle_plainness", "settle_wrappers",
    "all_settled", "settle_result", "settle_loop", "settled_flags", "lane", "lanes", "fast_lane", "other_lanes",
    "recording_lane", "batching_lane", "sum_of_lanes", "fronts", "in front", "go_back", "go_backward", "PullBack",
    "pull_back", "push_forward", "place_of_leaf", "result_place", "shortcuts", "StandIns", "SubstituteBelow",
    "outlived", "misplaced_error", "call_shown", "FOREIGN", "is_foreign", "makes_arrays", "passed_on_as_it_stands",
    "others_rank", "TapeRule", "FunctionRule", "CallRule", "ViewRule", "WrittenRule", "AnyRule",
    "LevelRule", "CheckpointRule", "VmappedFunction", "vmapped",
    "mapped", "is_mapped", "is_mapped_mask", "saved value", "saved values", "stand_ins", "_pull_back",
    "_push_forward", "forward-mode rule", "meta rule", "meta rules", "autograd record",
    "rule_of", "_Tracer", "mapped_in_general", "misplaced", "pulled_back", "pushed_forward", "put_in_slot",
    "slot_for_result", "set_entry", "take_outline", "have_same_outline",
    "untaken", "UntakenArgumentError", "untaken_names", "untaken_argument", "check_untaken",
    "Outline", "Outlined", "outline", "outlines", "outlined", "outlined_of", "count_as_user",
    "joined_loops", "JoinedLoops", "LoopJoiner", "joined loops", "shared_rows", "kept_memory", "kept_arrays",
]
IDENTIFIERS = [r"\.makes\b", r"\bmakes ?=", r"\.draws\b", r"\bdraws=", r"\bcomposites ?= ?[\"']", r"\.composites\b",
               r"^class (?:Rule|Place|Run|Chain|Fold|Writing|Batch|Substitute|_Record)\b", r"\bstate\.top\b",
               r"\bstate\.entry\b", r"\btable\.rule\b", r"\bnode\.rule\b",
               r"^cdef class (?:Node|Step|Entry|Place|Run|Chain)\b"]


@together("path", SOURCES + PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_retired_word_is_left(path):
    words = rf"(?<![\w-])(?:{'|'.join(map(re.escape, WORDS))})(?![\w-])"
    pattern = re.compile("|".join([words, *IDENTIFIERS]))
    lines = path.read_text().splitlines()
    found = [f"{n}: {match.group()}" for n, line in enumerate(lines, 1) for match in pattern.finditer(line)]
    assert not found, "\n".join(found)
