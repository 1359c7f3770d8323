"""Generate the table of Unicode 14 that both SDKs ship: `python client/unicode14.py`.

It needs Python 3.11, whose `unicodedata` is of Unicode 14, and Perl 5.36, whose properties are. The
emoji are those of emoji-zwj-sequences.txt and emoji-variation-sequences.txt, version 14.0.
"""

import subprocess
import unicodedata
from collections.abc import Iterable
from pathlib import Path

CLIENT = Path(__file__).resolve().parent
JOINERS = {0x200C, 0x200D, 0xFE0F}
UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}

IGNORABLE = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0x1D159, 0x1D159),
    (0xE0000, 0xE0FFF),
)
"""Code points of other categories that show nothing by themselves: Default_Ignorable_Code_Point of
DerivedCoreProperties.txt, the empty pattern of Braille and the null notehead."""

PERL = r"""
use Unicode::UCD qw(charscript);
die "expected Unicode 14" unless Unicode::UCD::UnicodeVersion() eq "14.0.0";
for my $code (grep { $_ < 0xD800 || $_ > 0xDFFF } 0 .. 0x1FFFF) {
  my $c = chr $code;
  my $kind = $c =~ /\p{ccc=9}/ ? "V" : $c =~ /\p{Jt=D}/ ? "D" : $c =~ /\p{Jt=L}/ ? "L"
    : $c =~ /\p{Jt=R}/ ? "R" : $c =~ /\p{Me}/ ? "T"
    : $c =~ /\p{Mn}/ ? $c =~ /\p{InSC=Vowel_Dependent}/ ? "W" : $c =~ /\p{ccc=0}/ ? "N" : "M"
    : $c =~ /\p{InSC=Vowel_Dependent}/ ? "U" : $c =~ /\p{L}/ ? "A" : "-";
  my $text = $c =~ /\p{Emoji}/ && ($c !~ /\p{EPres}/ || $code < 0x10000) ? 1 : 0;
  print "$code $kind ", charscript($code) || "-", " $text\n";
}
"""
"""Prints, of each code point, the kind for `KINDS`, its script, and whether it may take U+FE0F."""

PICTURES = (  # these take U+FE0F too, though they are pictures without it
    "🀄🈚🈯🌍🌎🌏🌕🌜🍸🎓🎧🎬🎭🎮🏂🏄🏆🏊🏠🏭🐈🐕🐟🐦👂👆👇👈👉👍👎👓👪👽💣💰💳💻💿📋📚📟📤📥📦📪📫📬📭📷📹📺📻🔈🔍🔒🔓"
    "🕐🕑🕒🕓🕔🕕🕖🕗🕘🕙🕚🕛🕜🕝🕞🕟🕠🕡🕢🕣🕤🕥🕦🕧😐🚇🚍🚑🚔🚘🚭🚲🚹🚺🚼"
)

EMOJI = """\
⛹🏃🏄🏊🏋🏌👮👯👰👱👳👷💁💂💆💇🕵🙅🙆🙇🙋🙍🙎🚣 ♂ ♀
🚴🚵🚶🤦🤵🤷🤸🤹🤼🤽🤾🦸🦹🧍🧎🧏🧔🧖🧗🧘🧙🧚🧛🧜🧝🧞🧟 ♂ ♀
👨👩🧑 ⚕ ⚖ ✈ 🌾 🍳 🍼 🎓 🎤 🎨 🏫 🏭 💻 💼 🔧 🔬 🚀 🚒 🦯 🦰 🦱 🦲 🦳 🦼 🦽
🧑 🎄 ❤~🧑 ❤~💋~🧑 🤝~🧑
👨👩 ❤~👨 ❤~💋~👨 🤝~👨 👦 👦~👦 👧 👧~👦 👧~👧 👩~👦 👩~👦~👦 👩~👧 👩~👧~👦 👩~👧~👧
👨 👨~👦 👨~👦~👦 👨~👧 👨~👧~👦 👨~👧~👧
👩 ❤~👩 ❤~💋~👩 🤝~👩
❤ 🔥 🩹
🏳 🌈 ⚧
🏴 ☠
🐈 ⬛
🐕 🦺
🐻 ❄
👁 🗨
😮 💨
😵 💫
😶 🌫
🫱 🫲
"""

TEXTS = {
    "SEEN": "Code points that a text may have: assigned in Unicode 14, and seen. Base 36: how many "
    "are left out, then how many follow, and so on.",
    "KINDS": "What matters beside a joiner, by script, the marks of all scripts first: after how "
    "many code points others follow that are of one kind. D, L, R: letters that join on both "
    "sides, the left, the right. A: other letters. V: viramas. M, N, W, T: marks with a class, "
    "without, vowels, enclosing. U: vowels that take room.",
    "EMOJI": "Emoji of several, joined by U+200D (~), without U+FE0F and colours of skin: each of "
    "the first pictures of a line with each of the others.",
    "PRESENTED": "Emoji that may have U+FE0F behind them; as SEEN.",
}


def base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def runs(codes: Iterable[int]) -> str:
    """Return sorted code points as the lengths of gaps and runs."""
    lengths, end = [], 0
    for code in codes:
        if code == end and lengths:
            lengths[-1] += 1
        else:
            lengths += [code - end, 1]
        end = code + 1
    return " ".join(map(base36, lengths))


def kinds(rows: list[tuple[int, str, str]]) -> str:
    """Return the kinds of each script: a gap, the kind, and how many code points, 1 left out."""
    chosen = {script for _, kind, script in rows if kind in "DLRV"}
    found = []
    for script in ["Inherited", *sorted(chosen)]:
        text, end, last, length = [], 0, ("", 0), 0
        for code, kind, own in rows:
            if own != script or kind == "-":
                continue
            if text and code == end and kind == last[0]:
                length += 1
                text[-1] = f"{last[1]}{kind}{base36(length)}"
            else:
                last, length = (kind, base36(code - end) if code > end else ""), 1
                text.append(f"{last[1]}{kind}")
            end = code + 1
        found.append(" ".join(text))
    return "|".join(found)


def tables() -> dict[str, str]:
    assert unicodedata.unidata_version == "14.0.0", "expected the unicodedata of Unicode 14"
    printed = subprocess.run(["perl", "-e", PERL], check=True, capture_output=True, text=True)
    rows = [line.split() for line in printed.stdout.splitlines()]
    ignorable = {code for first, last in IGNORABLE for code in range(first, last + 1)}
    seen = [
        code
        for code in range(0x110000)
        if code == 0x20 or (unicodedata.category(chr(code)) not in UNSEEN and code not in ignorable)
    ]
    presented = {int(code) for code, _, _, text in rows if text == "1"} | set(map(ord, PICTURES))
    return {
        "SEEN": runs(seen),
        "KINDS": kinds([(int(code), kind, script) for code, kind, script, _ in rows]),
        "EMOJI": EMOJI.strip(),
        "PRESENTED": runs(sorted(presented)),
    }


def write() -> None:
    source = "Made by client/unicode14.py."
    python = f'"""What texts may have, by Unicode 14. {source}"""\n\n# ruff: noqa: E501\n'
    web = f"/** What texts may have, by Unicode 14. {source} */\n"
    for name, table in tables().items():
        python += f'\n{name} = """\\\n{table}"""\n"""{TEXTS[name]}"""\n'
        web += f"\n/** {TEXTS[name]} */\n// prettier-ignore\nexport const {name} = `\\\n{table}`;\n"
    (CLIENT / "python/hearsay/plans/unicode14.py").write_text(python, encoding="utf-8")
    (CLIENT / "web/src/plans/unicode14.ts").write_text(web, encoding="utf-8")


if __name__ == "__main__":
    write()
