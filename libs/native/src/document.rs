//! Events that arrive as JSON and are passed through: what `headrace_lumberjack.events` and `headrace_courier.events` make of
//! those with nothing unusual about them.
//!
//! Only Python knows what the origin of an event is: `Fields::key` has all that it depends on, as written, and Python says once
//! for each key what comes of it.

use crate::ids::field;
use crate::msgpack::Odd;
use crate::scan::{unescape, Scan};
use crate::time::is_utc;

/// Where a value is kept; below `KEYED`, it is part of the key.
const KEYED: usize = 14;
const TIME: usize = 14;
const MESSAGE: usize = 15;
const OFFSET: usize = 16;
const SLOTS: usize = 17;

/// What to do with the value of a name.
enum Want {
    /// A text, or null, which is nothing.
    Text(usize),
    /// Any value.
    Raw(usize),
    /// An integer that is not below 0, or null.
    Number(usize),
    /// An object with these names, or null.
    Object(Names),
    /// A text, such an object, or null.
    TextOrObject(usize, Names),
    /// Its event is Python's.
    Python,
}

type Names = &'static [(&'static [u8], Want)];

/// `headrace_lumberjack.fields.Fields`.
const BEATS: Names = &[
    (b"@timestamp", Want::Text(TIME)),
    (b"message", Want::Text(MESSAGE)),
    (b"agent", Want::Object(&[(b"id", Want::Text(0)), (b"ephemeral_id", Want::Text(1)), (b"hostname", Want::Text(2))])),
    (b"log", Want::Object(&[(b"file", Want::Raw(3)), (b"offset", Want::Number(OFFSET))])),
    (b"host", Want::TextOrObject(4, &[(b"name", Want::Text(5))])),
    (
        b"@metadata",
        Want::Object(&[
            (b"_id", Want::Python),
            (b"raw_index", Want::Text(6)),
            (b"index", Want::Text(7)),
            (b"beat", Want::Text(8)),
        ]),
    ),
    (b"type", Want::Text(9)),
    (b"tags", Want::Raw(10)),
    (b"fields", Want::Raw(11)),
    (b"data_stream", Want::Raw(12)),
    (b"event", Want::Object(&[(b"dataset", Want::Text(13))])),
];

/// `headrace_courier.events.Fields`.
const COURIER: Names =
    &[(b"@timestamp", Want::Text(TIME)), (b"type", Want::Text(0)), (b"path", Want::Text(1)), (b"host", Want::Text(2))];

/// A member of an event, as written; the bit of its name, and those of the slots that it fills.
struct Member<'a> {
    written: &'a [u8],
    name: u32,
    filled: u32,
}

/// What is read of an event, as written. Members that the event before has at the same place are not read again: what these fill
/// stays.
pub struct Fields<'a> {
    names: Names,
    depth: usize,
    slots: [&'a [u8]; SLOTS],
    filled: u32,
    members: Vec<Member<'a>>,
    /// Whether its key is another than that of the event before.
    pub moved: bool,
}

impl<'a> Fields<'a> {
    /// For events of Beats. `depth`: deepest nesting.
    pub fn of_beats(depth: usize) -> Self {
        Fields { names: BEATS, depth, slots: [b""; SLOTS], filled: 0, members: Vec::new(), moved: false }
    }

    /// For events of Courier.
    pub fn of_courier(depth: usize) -> Self {
        Fields { names: COURIER, ..Fields::of_beats(depth) }
    }

    /// Reads the next event. One that is `Odd` leaves nothing to compare the next one with.
    pub fn next(&mut self, raw: &'a [u8]) -> Result<(), Odd> {
        let (mut members, mut count, mut seen) = (std::mem::take(&mut self.members), 0, 0);
        let mut scan = Scan::new(raw, self.depth)?;
        let had_offset = !self.slots[OFFSET].is_empty();
        (self.filled, self.moved) = (0, false);
        scan.space();
        scan.members(0, |scan| {
            let name = match members.get(count) {
                Some(Member { written, name, filled }) if scan.again(written) => {
                    self.filled |= filled;
                    *name
                }
                other => {
                    let (start, before, is_more) = (scan.at(), self.filled, other.is_none());
                    let name = self.member(scan, 0, self.names)?;
                    let member = Member { written: scan.since(start), name, filled: self.filled & !before };
                    if is_more {
                        members.push(member);
                    } else {
                        members[count] = member;
                    }
                    name
                }
            };
            count += 1;
            once(&mut seen, name)
        })?;
        scan.space();
        for (slot, value) in self.slots.iter_mut().enumerate() {
            if self.filled >> slot & 1 == 0 {
                self.moved |= slot < KEYED && !value.is_empty();
                *value = b"";
            }
        }
        self.moved |= had_offset == self.slots[OFFSET].is_empty();
        if !scan.is_over() || !is_utc(self.time()) {
            return Err(Odd);
        }
        members.truncate(count);
        self.members = members;
        Ok(())
    }

    fn fill(&mut self, slot: usize, value: &'a [u8]) {
        self.moved |= slot < KEYED && self.slots[slot] != value;
        self.slots[slot] = value;
        self.filled |= 1 << slot;
    }

    /// Reads a member of an object that has `level` containers around it. Returns the bit of its name; 0 if it is none of `names`.
    fn member(&mut self, scan: &mut Scan<'a>, level: usize, names: Names) -> Result<u32, Odd> {
        let key = scan.key()?;
        let Some(number) = names.iter().position(|(name, _)| *name == key) else {
            if key.contains(&b'\\') {
                return Err(Odd); // it may be one of the names
            }
            return scan.value(level + 1).map(|_| 0);
        };
        match (&names[number].1, scan.peek()) {
            (Want::Raw(slot), _) | (Want::Text(slot) | Want::TextOrObject(slot, _), b'"') => {
                let value = scan.value(level + 1)?;
                self.fill(*slot, value);
            }
            (Want::Number(slot), b'0'..=b'9') => {
                let number = scan.value(level + 1)?;
                if number.len() > 18 || !number.iter().all(u8::is_ascii_digit) {
                    return Err(Odd); // none that Python keeps, or keeps as it is
                }
                self.fill(*slot, number);
            }
            (Want::Object(names) | Want::TextOrObject(_, names), b'{') => {
                let mut seen = 0;
                scan.members(level + 1, |scan| once(&mut seen, self.member(scan, level + 1, names)?))?;
            }
            (Want::Text(_) | Want::Number(_) | Want::Object(_) | Want::TextOrObject(..), b'n') => {
                scan.value(level + 1)?;
            }
            _ => return Err(Odd),
        }
        Ok(1 << number)
    }

    /// The content of a text, escapes and all; nothing if it is not there.
    fn text(&self, slot: usize) -> &'a [u8] {
        self.slots[slot].strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or_default()
    }

    /// The time, as sent: `is_utc`.
    pub fn time(&self) -> &'a [u8] {
        self.text(TIME)
    }

    /// Appends all that the event's origin depends on: equal for events of one origin.
    pub fn key(&self, out: &mut Vec<u8>) {
        for value in &self.slots[..KEYED] {
            out.extend_from_slice(value);
            out.push(0); // JSON has none
        }
        out.push(u8::from(!self.slots[OFFSET].is_empty()));
    }

    /// Appends what the id of a Beat's event hashes, as `headrace_lumberjack.identity` does. `begun`: what names its origin.
    pub fn identity(&self, out: &mut Vec<u8>, begun: &[u8], raw: &[u8]) -> Result<(), Odd> {
        if self.slots[MESSAGE].is_empty() {
            return Err(Odd);
        }
        out.extend_from_slice(begun);
        field(out, self.slots[OFFSET]);
        field(out, self.time());
        let message = self.text(MESSAGE);
        if message.contains(&b'\\') {
            let mut plain = Vec::with_capacity(message.len());
            unescape(&mut plain, message)?;
            field(out, &plain);
        } else {
            field(out, message);
        }
        field(out, &(raw.len() as u32).to_be_bytes());
        Ok(())
    }
}

/// Appends what the id of an event of Courier hashes. `begun`: what names its payload; `left`: events that this has from it on.
pub fn courier_identity(out: &mut Vec<u8>, begun: &[u8], left: u32, raw: &[u8]) -> Result<(), Odd> {
    out.extend_from_slice(begun);
    field(out, &left.to_be_bytes());
    field(out, raw);
    Ok(())
}

/// Adds the bit of a name to those that were `seen`. `Odd` if it is among them.
fn once(seen: &mut u32, name: u32) -> Result<(), Odd> {
    if *seen & name != 0 {
        return Err(Odd);
    }
    *seen |= name;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = concat!(
        r#" {"@timestamp":"2026-11-21T09:30:00.000Z","@metadata":{"beat":"b","raw_index":"r","index":null,"x":[]},"#,
        r#""agent":{"id":"a","ephemeral_id":"e","hostname":"h"},"log":{"file":{"path":"p"},"offset":7},"message":"m\n","#,
        r#""host":{"name":"n"},"type":null,"tags":["t"],"fields":{"f":1},"data_stream":null,"event":{"dataset":"d"},"more":{"id":1}} "#
    );
    const KEY: &[u8] =
        b"\"a\"\0\"e\"\0\"h\"\0{\"path\":\"p\"}\0\0\"n\"\0\"r\"\0\0\"b\"\0\0[\"t\"]\0{\"f\":1}\0null\0\"d\"\0\x01";

    fn beat(raw: &str) -> Result<Fields<'_>, Odd> {
        let mut fields = Fields::of_beats(4);
        fields.next(raw.as_bytes()).map(|()| fields)
    }

    fn key(raw: &str) -> Result<Vec<u8>, Odd> {
        let mut key = Vec::new();
        beat(raw)?.key(&mut key);
        Ok(key)
    }

    fn id(raw: &str) -> Result<Vec<u8>, Odd> {
        let mut out = Vec::new();
        beat(raw)?.identity(&mut out, b"begun", raw.as_bytes())?;
        out.strip_prefix(b"begun").map(<[u8]>::to_vec).ok_or(Odd)
    }

    /// `PLAIN` with one change, `old=>new`, of each of `all`.
    fn changed(all: &str) -> impl Iterator<Item = String> + '_ {
        all.split('~').map(|change| {
            let (old, new) = change.trim().split_once("=>").expect("a change");
            assert!(PLAIN.contains(old), "{old}");
            PLAIN.replace(old, new)
        })
    }

    const SAME: &str = r#""offset":7=>"offset":8~m\n=>x~00.000Z=>01Z~"more":{"id":1}=>"a":[]~,"index":null=>~,"type":null=>
        ~"message":"m\n"=>"message":null"#;
    const OTHER: &str = r#""b"=>"c"~"r"=>null~"a"=>"b"~"e"=>null~"h"=>"i"~{"path":"p"}=>null~"offset":7=>"offset":null~{"f":1}=>2
        ~{"name":"n"}=>"n"~"type":null=>"type":"t"~["t"]=>[]~"data_stream":null=>"data_stream":0~"d"=>"x"
        ~"data_stream":null=>"data_stream":0.5~,"event":{"dataset":"d"},"more":{"id":1}=>~,"tags":["t"]=>"#;
    const ODD: &str = r#"09:30=>25:30~"2026-11-21T09:30:00.000Z"=>null~"@timestamp"=>"time"~"b"=>5~"x":[]=>"_id":"i"~"more":=>"host":
        ~"offset":7=>"offset":7.0~"offset":7=>"offset":-7~"offset":7=>"offset":1234567890123456789~"offset":7=>"offset":"7"
        ~{"name":"n"}=>["n"]~"m\n"=>[]~{"dataset":"d"}=>"d"~"more"=>"type"~"x":[]=>"beat":"b"~"more"=>"a\u0067ent"
        ~"x":[]=>"\u0062eat":"c"~{"f":1}=>{"f":1~{"f":1}=>{"f":01}~["t"]=>[[[[]]]]~{"id":1}} =>{"id":1}} 1~"more":=>"message":"#;

    #[test]
    fn the_key_has_what_the_origin_depends_on() {
        assert_eq!(key(PLAIN).as_deref(), Ok(KEY));
        for raw in changed(SAME) {
            assert_eq!(key(&raw).as_deref(), Ok(KEY), "{raw}");
        }
        for raw in changed(OTHER) {
            assert_ne!(key(&raw).expect("plain"), KEY, "{raw}");
        }
    }

    #[test]
    fn what_python_must_see() {
        for raw in changed(ODD) {
            assert_eq!(key(&raw), Err(Odd), "{raw}");
        }
        assert_eq!(key("[]"), Err(Odd));
        let mut courier = Fields::of_courier(4);
        assert_eq!(courier.next(PLAIN.as_bytes()), Err(Odd)); // an object as host
        assert_eq!(courier.next(br#"{"@timestamp":"2026-11-21T09:30:00Z","path":"p","agent":{"id":5}}"#), Ok(()));
    }

    #[test]
    fn an_event_is_read_as_if_none_were_before() {
        let all: Vec<String> = [SAME, OTHER, ODD].into_iter().flat_map(changed).collect();
        for (first, second) in all.iter().flat_map(|first| all.iter().map(move |second| (first, second))) {
            let (mut fields, mut before) = (Fields::of_beats(4), Err(Odd));
            for raw in [first, second, first] {
                let read = fields.next(raw.as_bytes()).map(|()| {
                    let mut key = Vec::new();
                    fields.key(&mut key);
                    let mut id = Vec::new();
                    (key, fields.identity(&mut id, b"", raw.as_bytes()).map(|()| id))
                });
                let alone = key(raw).map(|key| (key, id(raw)));
                assert_eq!(read, alone, "{raw} after {first}");
                if let (Ok((before, _)), Ok((key, _))) = (&before, &read) {
                    assert_eq!(fields.moved, before != key, "{raw} after {first}");
                }
                before = read;
            }
        }
    }

    #[test]
    fn an_id_depends_on_what_its_event_says() {
        let plain = id(PLAIN).expect("plain");
        for raw in changed(r#""offset":7=>"offset":8~m\n=>m~00.000Z=>01.000Z~"more":{"id":1}=>"more":{}"#) {
            assert_ne!(id(&raw).as_ref(), Ok(&plain), "{raw}");
        }
        let other = PLAIN.replace("m\\n", "\\u006d\\n").replace("{\"id\":1}", "123"); // as long, but for the escape
        assert_eq!(id(&other), id(&PLAIN.replace("{\"id\":1}", "12345678")));
        assert_eq!(id(&PLAIN.replace("\"message\":\"m\\n\"", "\"message\":null")), Err(Odd));
    }

    #[test]
    fn an_id_of_courier_depends_on_the_place_and_all_bytes() {
        let mut out = Vec::new();
        assert_eq!(courier_identity(&mut out, b"begun", 258, b"raw"), Ok(()));
        assert_eq!(out, b"begun\0\0\0\x04\0\0\x01\x02\0\0\0\x03raw");
    }
}
