//! Writes JSON as Headrace's Python does: what orjson writes.

use crate::msgpack::Odd;

const HEX: &[u8; 16] = b"0123456789abcdef";
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bit of each of eight bytes that is not ASCII which stands in JSON text as it is; behind the first, of others too.
pub fn marks(word: u64) -> u64 {
    let below_space = word.wrapping_sub(ONES * 0x20);
    let quote = (word ^ (ONES * 0x22)).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * 0x5c)).wrapping_sub(ONES);
    (word | below_space | quote | backslash) & HIGH
}

fn escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Appends a text in quotation marks. `Odd` if it is not UTF-8.
pub fn text(out: &mut Vec<u8>, content: &[u8]) -> Result<(), Odd> {
    out.push(b'"');
    inside(out, content)?;
    out.push(b'"');
    Ok(())
}

/// Appends a text without its quotation marks. `Odd` if it is not UTF-8.
pub fn inside(out: &mut Vec<u8>, content: &[u8]) -> Result<(), Odd> {
    let mut words = content.chunks_exact(8);
    let all = words.all(|word| marks(u64::from_le_bytes(word.try_into().unwrap_or([0; 8]))) == 0);
    let tail = content.len() - content.len() % 8;
    if all && content[tail..].iter().all(|byte| byte.is_ascii() && !escaped(*byte)) {
        out.extend_from_slice(content);
        return Ok(());
    }
    if std::str::from_utf8(content).is_err() {
        return Err(Odd);
    }
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| escaped(*byte)) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Appends a number of at least `width` digits.
pub fn digits(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut buffer = [b'0'; 20];
    let mut at = buffer.len();
    while number > 0 {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&buffer[at.min(buffer.len() - width)..]);
}

/// Appends a float in its shortest form. `Odd` if it is none that JSON has, or needs an exponent: libraries write these differently.
pub fn float(out: &mut Vec<u8>, number: f64) -> Result<(), Odd> {
    if !number.is_finite() {
        return Err(Odd);
    }
    let mut buffer = ryu::Buffer::new();
    let digits = buffer.format_finite(number).as_bytes();
    if digits.contains(&b'e') {
        return Err(Odd);
    }
    out.extend_from_slice(digits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(content: &[u8]) -> Result<String, Odd> {
        let mut out = Vec::new();
        text(&mut out, content)?;
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn each_byte_at_each_place_is_written_as_the_slow_way_writes_it() {
        for size in 1..20 {
            for at in 0..size {
                for byte in 0..=255u8 {
                    let mut content = vec![b'a'; size];
                    content[at] = byte;
                    let expected = match byte {
                        128.. => Err(Odd),
                        b'"' | b'\\' => Ok(format!("\\{}", byte as char)),
                        8 => Ok("\\b".into()),
                        9 => Ok("\\t".into()),
                        10 => Ok("\\n".into()),
                        12 => Ok("\\f".into()),
                        13 => Ok("\\r".into()),
                        0..32 => Ok(format!("\\u{byte:04x}")),
                        _ => Ok((byte as char).to_string()),
                    };
                    let expected =
                        expected.map(|each| format!("\"{}{}{}\"", "a".repeat(at), each, "a".repeat(size - at - 1)));
                    assert_eq!(written(&content), expected);
                }
            }
        }
    }

    #[test]
    fn text_beyond_ascii_stays() {
        assert_eq!(written("über\u{2028}😀".as_bytes()), Ok("\"über\u{2028}😀\"".into()));
        assert_eq!(written(b"\xed\xa0\x80"), Err(Odd));
    }

    #[test]
    fn numbers() {
        for (number, width, expected) in [(0, 1, "0"), (u64::MAX, 1, "18446744073709551615"), (42, 9, "000000042")] {
            let mut out = Vec::new();
            digits(&mut out, number, width);
            assert_eq!(out, expected.as_bytes());
        }
    }

    #[test]
    fn what_is_no_number_is_odd_and_what_needs_an_exponent() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e16, -1e-6] {
            assert_eq!(float(&mut Vec::new(), number), Err(Odd));
        }
    }
}
