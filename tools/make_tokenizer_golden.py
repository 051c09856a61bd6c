#!/usr/bin/env python3
"""Make tests/golden/tokenizer/cases.json.zst with Hugging Face's `tokenizers`, the witness of
tests/corpus/unit/test_tokenizer.c and tests/tools/tokenizer/test_train.c.

    make_tokenizer_golden.py OUT [DEEPSEEK_TOKENIZER_JSON [MIXED_TEXT]]

The file holds a small text and what BpeTrainer learns from it, texts to encode, and for each of
some pre-tokenizers the ids of those texts, and sets of added tokens with texts that hold them; the same
with forms of Unicode, and for vocabularies of characters; with the second argument also DeepSeek-V3's
ids; with the third the FNV-1a sums of `tools/make_mixed_text 0.3 7 MIXED_TEXT seeded` and of its ids
with each of the vocabularies in the folder of the second (of tiktoken for .tiktoken files).
"""
import array
import base64
import json
import os
import random
import sys

import golden_file
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

VOCAB = 390
UNREACHABLE = "\u0120of\u0120the"  # a token that no merge makes: only ignore_merges finds it

SYLLABLES = "ra ne to li shu ma ke on ve dis tra in ar el ou th".split()
TEXTS = [
    "",
    " ",
    "a",
    " of the",
    "The trains, they're sorted; the cars' order isn't lost.",
    "Hello, \u4e16\u754c! It's 1234567 tokens.\n\n  don't",
    "tabs\tand  two spaces,   three\r\nnext line\r\n\r\n\tend \n",
    "for (int i = 0; i < n; i++) x[i] += 0x1F; // ra_ne",
    "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d \U0001f642\U0001f469\u200d\U0001f467 \u0663\u0664 \u2167 \u00bd",
    "\u00a0\u3000\u2028\u0085\u000b\u000c x\u00a0\u00a0y",
    "\u30ab\u30bf\u30ab\u30ca \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u03b5\u03bb \u05e2\u05d1 \ud55c\uae00 e\u0301",
    "O'RLY WE'LL it'S ABCdefGHI",
    "<|endoftext|>",
    "shushushu toliramakeonve " + "ra" * 40 + "z" + "=" * 30,
]

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


LLAMA3 = CL100K
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# What a form of Unicode changes: marks in the wrong order, Hangul in parts, a letter and its mark.
FORMS = [
    "e\u0301\u0323o\u0323\u0302 \u0344 \u212b\u2126 a\u0315\u0300\u05ae\u0062",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud558\u11ab \ud558\u11a7 \u1100\u11a8",
    "\u0958 \u2adc \ufb1d \u09c7\u09be \U0001d15e",
    "ASCII alone, then caf\u00e9 and \u4e16\u754c",
]
META = [("first", False), ("first", True), ("always", False), ("always", True), ("never", False), ("never", True)]


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(add_prefix_space=False, use_regex=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def sequence(*stages):
    return {"type": "Sequence", "pretokenizers": list(stages)}


PIPELINES = [
    ("gpt2", byte_level(use_regex=True), False),
    ("gpt2 with a space before", byte_level(True, True), False),
    ("no cuts", byte_level(), False),
    ("no cuts, whole tokens first", byte_level(), True),
    ("removed, inverted", sequence(split({"Regex": CL100K}, "Removed", True), byte_level()), False),
    ("white space removed", sequence(split({"Regex": r"\s+"}, "Removed"), byte_level()), False),
    (
        "three patterns",
        sequence(
            split({"Regex": r"\p{N}{1,3}"}),
            split({"Regex": "[\u4e00-\u9fa5\u30a0-\u30ff]+"}),
            split({"Regex": r"[!-/][A-Za-z]+| ?[\p{L}\p{M}]+|\s+(?!\S)|\s+"}),
            byte_level(),
        ),
        False,
    ),
    (
        "digits, then gpt2 with spaces",
        sequence({"type": "Digits", "individual_digits": True}, byte_level(True, True)),
        False,
    ),
    ("a literal", sequence(split({"String": "a"}), byte_level()), False),
    ("empty matches", sequence(split({"Regex": "(?=[A-Z])|x*"}), byte_level()), False),
    ("llama 3", sequence(split({"Regex": LLAMA3}), byte_level()), True),
    ("qwen", sequence(split({"Regex": QWEN}), byte_level()), False),
    ("o200k", sequence(split({"Regex": O200K}), byte_level()), True),
    ("white space of every kind", sequence(split({"Regex": r"\s+|\S[\s\\s]?"}), byte_level()), False),
    ("with what is before", sequence(split({"Regex": r"\s|[a-z]e"}, "MergedWithPrevious"), byte_level()), False),
    ("with what is behind", sequence(split({"String": " "}, "MergedWithNext"), byte_level()), False),
    ("every line", sequence(split({"Regex": "^.|.$"}), byte_level()), False),
]


def added(content, **flags):
    names = ["single_word", "lstrip", "rstrip", "normalized", "special"]
    return {**dict.fromkeys(names, False), "content": content, **flags}


CHARACTER_TEXTS = TEXTS + [
    "<s>hi<s> of<s> of </s>",
    "  two  spaces <s>  ",
    "\u2581of\u2581 \u2581",
    "a\u2581b<0x41><unk>",
    "in on n  an n\nn\n\nnn",
]


def prepend(text):
    return {"type": "Prepend", "prepend": text}


def replace(text, by):
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def metaspace(scheme, cuts):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cuts}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


# Vocabularies of characters: name, normalizer, pre-tokenizer, ignore_merges, are added tokens normalized.
CHARACTERS = [
    ("llama 2", normalizers(prepend("\u2581"), replace(" ", "\u2581")), None, False, False),
    ("llama 2, normalized", normalizers(prepend("\u2581"), replace(" ", "\u2581")), None, False, True),
    ("whole pieces first", normalizers(prepend("\u2581"), replace(" ", "\u2581")), None, True, False),
    ("gemma", replace(" ", "\u2581"), split({"String": " "}, "MergedWithPrevious"), False, False),
    ("mixtral", None, metaspace("first", False), False, False),
    ("no signs", None, None, False, False),
    *[(f"metaspace {s} {c}", None, metaspace(s, c), False, False) for s, c in META],
]

# Ids follow the vocabulary's in this order; the last of the first set is a token of the vocabulary.
ADDED = [
    (
        "no flags",
        byte_level(use_regex=True),
        [
            added("<|User|>"),
            added("<|end|>", special=True),
            added("<|end|>x"),
            added("<|"),
            added("\u4e16<"),
            added("of"),
            added("ra"),
        ],
        [
            "<|User|>hi of the<|end|>",
            "<|end|>xy<|end|>x<|end|><|end",
            "a<|User<|User|>|><|||>",
            "<|end|> <|end|>  of",
            "\u4e16\u4e16<\u4e16<|User|>\u4e16",
            "oof off don't<|end|>'t",
            "<",
            "rara raraz<|User|>ra",
        ],
    ),
    (
        "white space before and after",
        byte_level(True, True),
        [
            added("<l>", lstrip=True),
            added("<r>", rstrip=True, special=True),
            added("<lr>", lstrip=True, rstrip=True),
            added("  "),
            added("\n"),
        ],
        [
            "a   <l>   b",
            "a   <r>     b",
            "<r>    <l> <lr> <lr>\t\u3000x",
            "x \u00a0\u2003\u0085\u180e<lr>\u1680\u202f\u200b\u205f y",
            "  <lr>  ",
            "\n<r>\n\n<l>\n",
            "<r>     the<l>",
            "    \n   ",
        ],
    ),
    (
        "white space that nothing else takes",
        byte_level(use_regex=True),
        [
            added("<l>", lstrip=True),
            added("<r>", rstrip=True),
            added("<lr>", lstrip=True, rstrip=True, special=True),
        ],
        [
            "a   <l>   b <r>   c  <lr>  d",
            "a\u00a0\u2003\u0085\t<l>\n<r>\u2028 \r\n\u3000x",
            "a\u3000\u180e\u205f<lr>\u1680\u202f\u200b\u205f",
            "<r>  <l>  <lr>  <r>  ",
            " \u2029<lr>",
        ],
    ),
    (
        "single words",
        byte_level(use_regex=True),
        [
            added("ra", single_word=True),
            added("of", single_word=True, lstrip=True),
            added("rara", single_word=True, rstrip=True, normalized=True),
            added("-", single_word=True),
        ],
        [
            "ra ra, rara raraz zra ra_ ra2 (ra) ra",
            "a of of- of.of \u00e9of of\u0301 of\u200d of\u00b2 of\u24d0 of\u2167 of\u203f\u4e16of",
            "- a- -a a-b --",
            "rara   rara  ra\u3000",
            "of",
        ],
    ),
    (
        "normalized ones come second",
        byte_level(use_regex=True),
        [
            added("<a>", normalized=True),
            added("<a><b>", normalized=True, special=True),
            added("a>x"),
            added("b><", special=True),
            added(" <a>", normalized=True, lstrip=True),
        ],
        ["<a>x<a><b><a>", "<a><b>x<a><b", "   <a> <a>\n <a>x", "<a><b><a><b>"],
    ),
]
DEEPSEEK_ROLES = [
    "<\uff5cUser\uff5c>hi<\uff5cAssistant\uff5c> <think>\n<|EOT|>",
    "<\uff5cfim\u2581begin\uff5c>def f():\n<\uff5cfim\u2581hole\uff5c>    return 1"
    "<\uff5cfim\u2581end\uff5c><\uff5cend\u2581of\u2581sentence\uff5c>",
    "<\uff5cUser\uff5c<\uff5cUser\uff5c> <\uff5cplace\u2581holder\u2581no\u258112\uff5c>",
    "<\uff5ctool\u2581call\u2581begin\uff5c><\uff5ctool\u2581calls\u2581begin\uff5c>",
]


def training_text():
    rng = random.Random(7)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(60)]
    text = []
    for _ in range(45):
        line = [words[min(int(rng.expovariate(0.08)), 59)] for _ in range(rng.randint(4, 12))]
        text.append(" ".join(line).capitalize() + rng.choice([".", "?", ", 17.", " of the"]))
    return "\n".join(text) + "\n" + "aaaa aaa aaaaa " * 3


def train(text):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    t.train_from_iterator([text], trainer)
    return [list(m) for m in json.loads(t.to_str())["model"]["merges"]]


def train_characters(text):
    """A vocabulary with a token for each byte, in which U+2581 stands for a space."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB + 60, special_tokens=special, show_progress=False)
    t.train_from_iterator([text + " \u4e16 na\u00efve"], trainer)
    return json.loads(t.to_str())["model"]


def joined(model, left, right):
    """The same with one more token, from two that are not joined otherwise."""
    its = dict(model, vocab=dict(model["vocab"]), merges=[[left, right], *model["merges"]])
    its["vocab"][left + right] = len(its["vocab"])
    return its


def characters(vocabularies):
    plain = replace(" ", "\u2581")
    rows = [(*row, "characters_model") for row in CHARACTERS]
    rows.append(("a sign inside a token", plain, None, False, False, "characters_sign"))
    rows.append(("a byte inside a token", plain, None, False, False, "characters_byte"))
    for name, normalizer, pre_tokenizer, ignore_merges, normalized, which in rows:
        tokens = enumerate(["<unk>", "<s>", "</s>"])
        file = {
            "added_tokens": [
                dict(added(c, special=True, normalized=normalized), id=i) for i, c in tokens
            ],
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "model": dict(vocabularies[which], ignore_merges=ignore_merges),
        }
        ids = encode(dict(file, version="1.0"), CHARACTER_TEXTS)
        del file["model"]
        yield {
            "name": name,
            **file,
            "ignore_merges": ignore_merges,
            "model": which,
            "texts": CHARACTER_TEXTS,
            "ids": ids,
        }


def forms(model):
    for form in ["NFC", "NFD"]:
        for name, pre_tokenizer in [("gpt2", byte_level(use_regex=True)), ("no cuts", byte_level())]:
            added_tokens = [dict(added("<e\u0301>", normalized=True), id=len(model["vocab"]))]
            file = {
                "added_tokens": added_tokens,
                "normalizer": {"type": form},
                "pre_tokenizer": pre_tokenizer,
                "model": model,
            }
            texts = FORMS + TEXTS + ["<e\u0301>x<\u00e9>"]
            ids = encode(dict(file, version="1.0"), texts)
            del file["model"]
            yield {"name": form + ", " + name, **file, "texts": texts, "ids": ids}


def encode(file, texts):
    t = Tokenizer.from_str(json.dumps(file))
    return [t.encode(x, add_special_tokens=False).ids for x in texts]


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def mixed(deepseek, path):
    import tiktoken
    import tiktoken_ext.openai_public as openai

    text, folder = open(path, "rb").read(), os.path.dirname(deepseek)
    own = tokenizers.Tokenizer.from_file(deepseek).encode(text.decode(), add_special_tokens=False).ids
    ids = {"deepseek-v3.tokenizer.json": own}
    for name in ["gpt2", "o200k_base"]:
        lines = open(f"{folder}/{name}.tiktoken", "rb").read().split()
        ranks = {base64.b64decode(t): int(r) for t, r in zip(lines[::2], lines[1::2])}
        openai.data_gym_to_mergeable_bpe_ranks = openai.load_tiktoken_bpe = lambda *_, **__: ranks
        encoding = tiktoken.Encoding(**openai.ENCODING_CONSTRUCTORS[name]())
        ids[name + ".tiktoken"] = encoding.encode(text.decode(), allowed_special="all")
    sums = {name: fnv(array.array("i", i).tobytes()) for name, i in ids.items()}
    return {"text": fnv(text), "ids": sums}


def main():
    out, deepseek = sys.argv[1], sys.argv[2:]
    text = training_text()
    merges = train(text)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = alphabet + ["".join(m) for m in merges] + [UNREACHABLE]
    model = {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}
    golden = {
        "made_with": "tokenizers " + tokenizers.__version__,
        "training_text": text,
        "vocab": VOCAB,
        "model": model,
        "texts": TEXTS,
        "pipelines": [],
        "added": [],
    }
    for name, pre_tokenizer, ignore_merges in PIPELINES:
        file = {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": pre_tokenizer,
            "model": dict(model, ignore_merges=ignore_merges),
        }
        golden["pipelines"].append(
            {
                "name": name,
                "pre_tokenizer": pre_tokenizer,
                "ignore_merges": ignore_merges,
                "ids": encode(file, TEXTS),
            }
        )
    for name, pre_tokenizer, each, texts in ADDED:
        new = iter(range(len(tokens), len(tokens) + len(each)))
        each = [dict(a, id=model["vocab"].get(a["content"])) for a in each]
        each = [dict(a, id=next(new)) if a["id"] is None else a for a in each]
        file = {
            "version": "1.0",
            "added_tokens": each,
            "pre_tokenizer": pre_tokenizer,
            "model": model,
        }
        golden["added"].append(
            {
                "name": name,
                "pre_tokenizer": pre_tokenizer,
                "added_tokens": each,
                "texts": texts,
                "ids": encode(file, texts),
            }
        )
    golden["forms"] = list(forms(model))
    characters_model = train_characters(text)
    vocabularies = {
        "characters_model": characters_model,
        "characters_sign": joined(characters_model, "n", "\u2581"),
        "characters_byte": joined(characters_model, "<0x09>", "a"),
    }
    golden.update(vocabularies, characters=list(characters(vocabularies)))
    if deepseek:
        file = json.load(open(deepseek[0], encoding="utf-8"))
        golden["deepseek_v3"] = encode(file, TEXTS)
        golden["deepseek_v3_roles"] = {
            "texts": DEEPSEEK_ROLES,
            "ids": encode(file, DEEPSEEK_ROLES),
        }
    if len(deepseek) > 1:
        golden["mixed"] = mixed(*deepseek)
    members = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items())
    golden_file.pack(out, ("{\n" + members + "\n}\n").encode("ascii"))


main()
