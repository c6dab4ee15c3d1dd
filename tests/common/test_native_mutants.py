"""Each guard of the native core is missed by its own tests when it is taken out."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Final, NamedTuple

import pytest
from headrace_cli.machine.native import SOURCES

from tests.contract.waiting import PATIENCE


class Mutant(NamedTuple):
    """A change of one place in a file. `by`: another file, whose tests find it; its own do otherwise."""

    file: str
    old: str
    new: str
    by: str = ""


MUTANTS: Final = {
    "nests without a limit": Mutant("entries", "level < self.message.depth.min(DEEPEST)", "true"),
    "nests one level deeper": Mutant("entries", "level < self.message", "level <= self.message"),
    "takes a key twice": Mutant("entries", "self.keys[first..].contains(&key)", "false"),
    "takes one of many keys twice": Mutant("entries", "!many.insert(key)", "many.insert(key) && false"),
    "forgets the keys of a map within": Mutant("entries", "self.keys.truncate(first);", ""),
    "counts the value alone": Mutant("entries", "self.value.len() + attributes.len() >", "self.value.len() >"),
    "has no limit": Mutant("entries", "self.value.len() + attributes.len() > message.event_bytes", "false"),
    "takes metadata for none": Mutant("entries", "input.item()? != Item::Map(0)", "input.item()? == Item::Nil"),
    "takes three elements": Mutant("entries", "if input.item()? != Item::Array(2) {", "if input.item()? == Item::Nil {"),
    "lets an ext go": Mutant("entries", "Item::Ext(..) => Err(Odd)", "Item::Ext(..) => Ok(())"),
    "swaps the ids": Mutant("entries", "if whole_millisecond {", "if !whole_millisecond {"),
    "takes bytes for text": Mutant("json", "std::str::from_utf8(content).is_err()", "false"),
    "escapes no quote": Mutant("json", "(word | below_space | quote | backslash)", "(word | below_space | backslash)"),
    "escapes no backslash": Mutant("json", "(word | below_space | quote | backslash)", "(word | below_space | quote)"),
    "escapes no control": Mutant("json", "(word | below_space | quote | backslash)", "(word | quote | backslash)"),
    "looks at no tail": Mutant("json", "byte.is_ascii() && !escaped(*byte)", "true"),
    "writes exponents": Mutant("json", "digits.contains(&b'e')", "false"),
    "nests JSON without a limit": Mutant("scan", "if level >= self.depth {", "if false {"),
    "nests JSON as deep as asked": Mutant("scan", "depth.min(DEEPEST)", "depth"),
    "takes JSON that is not UTF-8": Mutant("scan", "std::str::from_utf8(data).map_err(|_| Odd)?;", ""),
    "takes controls in a text": Mutant("scan", "0..0x20 => return Err(Odd)", "1..0x20 => at + 1"),
    "takes any escape": Mutant("scan", "_ => return Err(Odd),\n    };", "_ => 'x',\n    };"),
    "takes half a pair": Mutant("scan", "!(0xdc00..0xe000).contains(&second)", "false"),
    "takes three hex digits": Mutant("scan", "rest.get(..4)", "rest.get(..3)"),
    "takes no digits for a number": Mutant("scan", "(self.at > start).then_some(()).ok_or(Odd)", "Ok(())"),
    "takes a zero before a number": Mutant("scan", "if !self.next_is(b'0') {", "{"),
    "needs no comma": Mutant("scan", "self.expect(b',')?;", "self.next_is(b',');"),
    "needs no colon": Mutant("scan", "self.expect(b':')?;", "self.next_is(b':');"),
    "takes what follows JSON": Mutant("document", "!scan.is_over() || ", ""),
    "takes any text for a time": Mutant("document", " || !is_utc(self.time())", ""),
    "takes a name twice": Mutant("document", "if *seen & name != 0 {", "if false {"),
    "takes the start of a member for it": Mutant("scan", "matches!(rest.first(), Some(b',' | b'}'))", "true", by="document"),
    "fills no slot of what comes again": Mutant("document", "self.filled |= filled;", ""),
    "fills the slots of others": Mutant("document", "self.filled & !before", "self.filled"),
    "keeps what the event before filled": Mutant("document", "if self.filled >> slot & 1 == 0 {", "if false {"),
    "keeps members that an event lacks": Mutant("document", "members.truncate(count);", ""),
    "sees no other value": Mutant("document", "slot < KEYED && self.slots[slot] != value", "false"),
    "sees no value that is gone": Mutant("document", "slot < KEYED && !value.is_empty()", "false"),
    "sees no offset that comes or goes": Mutant("document", "had_offset == self.slots[OFFSET].is_empty()", "false"),
    "takes a name with an escape for another": Mutant("document", "if key.contains(&b'\\\\') {", "if false {"),
    "takes any number for an offset": Mutant("document", "!number.iter().all(u8::is_ascii_digit)", "false"),
    "takes an offset of any length": Mutant("document", "number.len() > 18 || ", ""),
    "takes one origin for another": Mutant("document", "out.push(0); // JSON has none", ""),
    "takes an event without an offset for one": Mutant(
        "document", "out.push(u8::from(!self.slots[OFFSET].is_empty()));", "out.push(1);"
    ),
    "takes the id of another": Mutant("document", '(b"_id", Want::Python),', ""),
    "names an event without a message": Mutant("document", "if self.slots[MESSAGE].is_empty() {", "if false {"),
    "hashes a message as written": Mutant("document", "if message.contains(&b'\\\\') {", "if false {"),
    "hashes no size": Mutant("document", "field(out, &(raw.len() as u32).to_be_bytes());", ""),
    "hashes no time": Mutant("document", "field(out, self.time());", ""),
    "hashes no offset": Mutant("document", "field(out, self.slots[OFFSET]);", ""),
    "knows no place in a payload": Mutant("document", "field(out, &left.to_be_bytes());", ""),
    "takes the last hex digits for others": Mutant("ids", "u32::from_be_bytes", "u32::from_le_bytes"),
    "takes half a frame": Mutant(
        "record", "rest.get(..usize::try_from(size).ok()?)", "Some(&rest[..rest.len().min(size as usize)])"
    ),
    "cuts frames of any length": Mutant("record", "json.len() <= largest && ", ""),
    "cuts frames of any kind": Mutant("record", ' && rest.starts_with(b"2J")', ""),
    "cuts frames without end": Mutant("record", "while ends.len() < most {", "loop {"),
    "takes any numbers for a row": Mutant("record", "expected == number", "true"),
    "takes any day": Mutant("time", "(1..=days).contains(&day)", "day > 0"),
    "knows no leap year": Mutant("time", "usize::from(leap)", "1"),
    "takes any month": Mutant("time", "1..=12 => 31", "_ if month < 99 => 31"),
    "takes the year 0": Mutant("time", "&& year > 0", ""),
    "takes any hour": Mutant("time", "&& number(11..13) < 24", ""),
    "takes any minute": Mutant("time", "&& number(14..16) < 60", ""),
    "takes any second": Mutant("time", "&& number(17..19) < 60", ""),
    "takes any decimals": Mutant("time", "&& decimals.iter().all(u8::is_ascii_digit)", ""),
    "takes ten decimals of a text": Mutant("time", "(1..=9).contains(&decimals.len())", "!decimals.is_empty()"),
    "takes what is compressed": Mutant("message", "COMPRESSED.iter().any(|magic| content.starts_with(magic))", "false"),
    "takes a tag of any length": Mutant("message", "tag.len() > limits.tag", "false"),
    "takes a tag that is no text": Mutant("message", "std::str::from_utf8(tag).is_err()", "false"),
    "takes a chunk of any length": Mutant("message", "chunk.len() <= limits.chunk", "true"),
    "takes a chunk that is no text": Mutant("message", "&& std::str::from_utf8(chunk).is_ok()", ""),
    "takes two chunks": Mutant("message", "seen.contains(&name)", "false"),
    "takes bytes behind a message": Mutant("message", "input.at() != data.len()", "false"),
    "takes an option of any length": Mutant("message", "input.at() - start > limits.option", "false"),
    "skips what is nested without a limit": Mutant("message", "level >= DEEPEST", "false"),
    "takes a chunk that may name the content": Mutant("message", "if OTHER_IDS.contains(&chunk.len()) {", "if false {"),
    "takes another tag": Mutant("message", "!data.get(1..).is_some_and(|rest| rest.starts_with(known.tag))", "false"),
    "hashes no client": Mutant("message", "text.extend_from_slice(known.client);", ""),
    "hashes no chunk": Mutant("message", "field(&mut text, chunk);", ""),
    "gives the first events for all": Mutant("message", "if read == body.len() {", "if read > 0 {"),
    "makes events without a limit": Mutant("message", "if total > most.total {", "if false {"),
    "hashes no length": Mutant("ids", "out.extend_from_slice(&(data.len() as u32).to_be_bytes());", "", by="message"),
    "writes no length": Mutant("ids", "out.extend_from_slice(&(data.len() as u32).to_be_bytes());", "", by="document"),
    "names no origin": Mutant("document", "out.extend_from_slice(begun);\n        field", "field"),
    "names no payload": Mutant("document", "out.extend_from_slice(begun);\n    field", "field"),
    "takes a wide header": Mutant("message", "start != 1", "false"),
    "takes gzip for text": Mutant("message", 'Item::Text(b"text")', "Item::Text(_)"),
    "takes metrics for logs": Mutant("message", "Item::Positive(0)", "Item::Positive(_)"),
    "takes the byte that is never used": Mutant("msgpack", "0xc1 => return Err(Odd)", "0xc1 => Item::Nil"),
    "takes half a text": Mutant(
        "msgpack", "self.data.get(self.at..end).ok_or(Odd)?", "&self.data[self.at.min(self.data.len())..end.min(self.data.len())]"
    ),
    "knows no sign": Mutant("msgpack", "if number < 0 {", "if false {"),
    "takes the marks of groups for times": Mutant("time", "seconds >= GROUP_END || ", ""),
    "takes any nanoseconds": Mutant("time", " || nanoseconds >= 1_000_000_000", ""),
    "takes 0 for a time": Mutant("time", "if seconds > 0 =>", "=>"),
    "takes any year": Mutant("time", "!(FIRST_SECOND..=LAST_SECOND).contains(&seconds)", "false"),
    "takes any float for a time": Mutant("time", "!(1.0..=LAST_SECOND as f64).contains(&seconds)", "false"),
    "takes finer times for milliseconds": Mutant("time", "kept.len() <= 3", "true"),
    "keeps ten decimals": Mutant("time", "decimals.len().min(9)", "decimals.len().min(10)"),
    "keeps the second of before": Mutant("time", "if self.second != Some(seconds) {", "if self.second.is_none() {"),
    "lays what does not fit": Mutant("record", "if out.len() > room {", "if false {"),
    "leaves half a record": Mutant("record", "out.truncate(start);", ""),
    "knows no place but the first": Mutant("record", "varint(out, i64::from(offset));", "varint(out, 0);"),
    "knows only short places": Mutant("record", "bits.div_ceil(7)", "1"),
    "counts attributes that are not there": Mutant(
        "record", "if event.attributes.is_empty() { self.bare }", "if false { self.bare }", by="entries"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The crate's tests, compiled once: each mutant is a module of its own, with the tests of its file."""
    crate = tmp_path_factory.mktemp("native") / "native"
    shutil.copytree(SOURCES, crate, ignore=shutil.ignore_patterns("target"))
    files = {mutant.file: (crate / "src" / f"{mutant.file}.rs").read_text() for mutant in MUTANTS.values()}
    modules = {f"sound_{file}": whole for file, whole in files.items()}
    for number, mutant in enumerate(MUTANTS.values()):
        sound, separator, tests = files[mutant.file].partition("#[cfg(test)]")
        assert mutant.old in sound
        modules[f"mutant_{number}"] = sound.replace(mutant.old, mutant.new) + separator + tests
        if mutant.by:
            modules[f"mutant_{number}_by"] = files[mutant.by].replace(
                f"crate::{mutant.file}::", f"crate::mutant_{number}::"
            )
    for name, source in modules.items():
        (crate / "src" / f"{name}.rs").write_text(source)
    with (crate / "src" / "lib.rs").open("a") as library:
        library.writelines(f"#[allow(warnings)]\nmod {name};\n" for name in modules)
    command = ["cargo", "test", "--no-run", "--message-format=json", "--no-default-features", "--lib"]
    done = subprocess.run(command, cwd=crate, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, done.stdout
    (built,) = [path for line in done.stdout.splitlines() if (path := json.loads(line).get("executable"))]
    assert passes(built, "--skip", "mutant_")
    return str(built)


def passes(program: str, *chosen: str) -> bool:
    return subprocess.run([program, *chosen], capture_output=True, timeout=PATIENCE).returncode == 0


@pytest.mark.long
@pytest.mark.timeout(15 * PATIENCE)  # the first compiles all of it, too
@pytest.mark.requires("cargo")
@pytest.mark.parametrize("number", range(len(MUTANTS)), ids=MUTANTS)
def test_a_mutant_is_found(program: str, number: int) -> None:
    assert not passes(program, f"mutant_{number}::", f"mutant_{number}_by::")
