//! Reads JSON (RFC 8259) that is passed through, without building it.

use crate::entries::DEEPEST;
use crate::json::marks;
use crate::msgpack::Odd;

/// JSON in UTF-8, and how far it is read. Texts are given as written, escapes and all.
pub struct Scan<'a> {
    data: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Scan<'a> {
    /// `depth`: deepest nesting; an object of plain values has 1.
    pub fn new(data: &'a [u8], depth: usize) -> Result<Self, Odd> {
        std::str::from_utf8(data).map_err(|_| Odd)?;
        Ok(Scan { data, at: 0, depth: depth.min(DEEPEST) })
    }

    /// What comes next; 0 at the end.
    pub fn peek(&self) -> u8 {
        self.data.get(self.at).copied().unwrap_or(0)
    }

    pub fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    pub fn is_over(&self) -> bool {
        self.at == self.data.len()
    }

    fn next_is(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Odd> {
        self.next_is(byte).then_some(()).ok_or(Odd)
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// What is read from `start` on.
    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.data[start..self.at]
    }

    /// Reads an object: `each` reads each member.
    pub fn members(&mut self, level: usize, each: impl FnMut(&mut Self) -> Result<(), Odd>) -> Result<(), Odd> {
        self.elements(level, b'{', b'}', each)
    }

    /// Reads a member up to its value. Returns its key.
    pub fn key(&mut self) -> Result<&'a [u8], Odd> {
        let key = self.text()?;
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(key)
    }

    /// Passes by `member`, which was read elsewhere at the same level, if just that comes next. Returns whether it does.
    pub fn again(&mut self, member: &[u8]) -> bool {
        let rest = self.data[self.at..].strip_prefix(member);
        let same = rest.is_some_and(|rest| matches!(rest.first(), Some(b',' | b'}')));
        self.at += if same { member.len() } else { 0 };
        same
    }

    /// `level`: how many containers are around it.
    fn elements(
        &mut self,
        level: usize,
        opens: u8,
        closes: u8,
        mut each: impl FnMut(&mut Self) -> Result<(), Odd>,
    ) -> Result<(), Odd> {
        if level >= self.depth {
            return Err(Odd);
        }
        self.expect(opens)?;
        self.space();
        if self.next_is(closes) {
            return Ok(());
        }
        loop {
            each(self)?;
            self.space();
            if self.next_is(closes) {
                return Ok(());
            }
            self.expect(b',')?;
            self.space();
        }
    }

    /// Reads any value. Returns it as written.
    pub fn value(&mut self, level: usize) -> Result<&'a [u8], Odd> {
        let start = self.at;
        match self.peek() {
            b'"' => self.text().map(|_| ())?,
            b'{' => self.members(level, |scan| scan.key().and_then(|_| scan.value(level + 1)).map(|_| ()))?,
            b'[' => self.elements(level, b'[', b']', |scan| scan.value(level + 1).map(|_| ()))?,
            b't' => self.word(b"true")?,
            b'f' => self.word(b"false")?,
            b'n' => self.word(b"null")?,
            _ => self.number()?,
        }
        Ok(self.since(start))
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Odd> {
        self.data[self.at..].starts_with(word).then(|| self.at += word.len()).ok_or(Odd)
    }

    fn digits(&mut self) -> Result<(), Odd> {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        (self.at > start).then_some(()).ok_or(Odd)
    }

    fn number(&mut self) -> Result<(), Odd> {
        self.next_is(b'-');
        if !self.next_is(b'0') {
            self.digits()?;
        }
        if self.next_is(b'.') {
            self.digits()?;
        }
        if self.next_is(b'e') || self.next_is(b'E') {
            let _ = self.next_is(b'+') || self.next_is(b'-');
            self.digits()?;
        }
        Ok(())
    }

    /// Reads a text. Returns it without its quotation marks.
    fn text(&mut self) -> Result<&'a [u8], Odd> {
        self.expect(b'"')?;
        let start = self.at;
        let mut at = start + plain(&self.data[start..]);
        while self.data.get(at) != Some(&b'"') {
            at = self.past(at)?;
        }
        self.at = at + 1;
        Ok(&self.data[start..at])
    }

    /// Where in a text the next byte is that `plain` does not pass by, behind what is at `at`.
    #[cold]
    fn past(&self, at: usize) -> Result<usize, Odd> {
        let next = match self.data.get(at).ok_or(Odd)? {
            b'\\' => at + escape(&self.data[at..])?.1,
            0..0x20 => return Err(Odd),
            _ => at + 1,
        };
        Ok(next + plain(&self.data[next..]))
    }
}

/// How many bytes at the start of `text` stand there as they are, at least. Where a word of eight is all so is a branch, not
/// computed: the next one need not wait for it.
fn plain(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = text[at..].first_chunk() {
        let word = u64::from_le_bytes(*word);
        let found = marks(word) & !word; // beyond ASCII all is plain: it is UTF-8
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at
}

/// Reads the escape at the start of `text`. Returns its character, and how many bytes it has. Half a surrogate pair is `Odd`.
fn escape(text: &[u8]) -> Result<(char, usize), Odd> {
    let plain = match text.get(1).ok_or(Odd)? {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let first = unit(text)?;
            if let Some(found) = char::from_u32(first) {
                return Ok((found, 6));
            }
            let second = unit(&text[6..])?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(Odd);
            }
            let both = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Ok((char::from_u32(both).ok_or(Odd)?, 12)); // none if the first is a second half
        }
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        _ => return Err(Odd),
    };
    Ok((plain, 2))
}

/// The number of a `\u`.
fn unit(text: &[u8]) -> Result<u32, Odd> {
    let digits = text.strip_prefix(b"\\u").and_then(|rest| rest.get(..4)).ok_or(Odd)?;
    digits.iter().try_fold(0, |all, byte| Ok(all << 4 | char::from(*byte).to_digit(16).ok_or(Odd)?))
}

/// Appends a text that was read, without its escapes.
pub fn unescape(out: &mut Vec<u8>, mut text: &[u8]) -> Result<(), Odd> {
    while let Some(at) = text.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&text[..at]);
        let (found, size) = escape(&text[at..])?;
        out.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
        text = &text[at + size..];
    }
    out.extend_from_slice(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &[u8]) -> Result<usize, Odd> {
        Scan::new(data, 3)?.value(0).map(<[u8]>::len)
    }

    #[test]
    fn json_is_read_as_written() {
        let all = r#"{}~[]~{ "a" : [ 1 , -0 , 0.5e+7,1E9,-12.50e-3 ] ,"b":{"a":null},  "":true}~false~""~"1234567"~"12345678"~0~
            "\"\\\/\b\f\n\r\t\u00e9\ud83d\uDE00 plain text without any end €"~[[[]]]"#;
        for data in all.split('~').map(str::trim_start) {
            assert_eq!(read(data.as_bytes()), Ok(data.len()), "{data}");
        }
        assert_eq!(read(b"[\n1,\r2\t]"), Ok(8));
    }

    #[test]
    fn what_is_no_json_is_odd() {
        let all = r#"{~{"a"}~{"a":}~{"a":1,}~{,}~[1,]~[1 2]~[,]~{a:1}~{1:1}~tru~nul~-~+1~.5~1.~1e~1e+~-.5~"~"\~"\x"~"\u12g4"~"\u12"~
            "\ud800"~"\ud800\n"~"\ud800\ud800"~"\udc00"~"\udc00\udc00"~[[[[]]]]~{"a":{"b":{"c":{}}}}~]~'a'~NaN~{"a" 1}~{"a":1 "b":2}"#;
        let others = ["", "\"\n\"", "\"\0\"", "\"12345678\u{1}\"", "\u{feff}1"];
        for data in all.split('~').map(str::trim_start).chain(others) {
            assert_eq!(read(data.as_bytes()), Err(Odd), "{data}");
        }
        assert_eq!(read(b"\"\xff\""), Err(Odd));
        assert_eq!(read(b"01"), Ok(1)); // and what follows is none of it
    }

    #[test]
    fn nesting_ends_where_it_is_followed_no_longer() {
        let data = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(Scan::new(data.as_bytes(), 1000).and_then(|mut scan| scan.value(0).map(<[u8]>::len)), Err(Odd));
    }

    #[test]
    fn each_byte_at_each_place_of_a_text() {
        for size in 1..20 {
            for at in 0..size {
                for byte in 0..128u8 {
                    let mut data = vec![b'a'; size + 2];
                    (data[0], data[at + 1], data[size + 1]) = (b'"', byte, b'"');
                    let expected = match byte {
                        b'"' => Ok(at + 2),
                        b'\\' if at + 1 < size => Err(Odd), // \a
                        b'\\' | 0..0x20 => Err(Odd),
                        _ => Ok(size + 2),
                    };
                    assert_eq!(read(&data), expected);
                }
            }
        }
    }

    #[test]
    fn escapes_are_undone() {
        let mut out = Vec::new();
        unescape(&mut out, r#"é\"\\\/\b\f\n\r\t\u00e9\ud83d\uDE00.\u0000"#.as_bytes()).expect("JSON");
        assert_eq!(String::from_utf8(out).expect("UTF-8"), "é\"\\/\u{8}\u{c}\n\r\té😀.\0");
    }
}
