//! Times as RFC 3339 in UTC.

use crate::json::digits;
use crate::msgpack::{Item, Odd};

/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;

/// From here on, the seconds of an EventTime mark a group of records (Fluent Bit).
const GROUP_END: u32 = 0xffff_fffe;

const DAY: i64 = 86_400;

/// Writes times; keeps the last second as text, as neighbouring events mostly share it.
#[derive(Default)]
pub struct Clock {
    second: Option<i64>,
    text: Vec<u8>,
}

impl Clock {
    /// The second without its `Z`.
    fn second(&mut self, seconds: i64) -> Result<&[u8], Odd> {
        if !(FIRST_SECOND..=LAST_SECOND).contains(&seconds) {
            return Err(Odd);
        }
        if self.second != Some(seconds) {
            self.second = Some(seconds);
            self.text.clear();
            let (year, month, day) = date(seconds.div_euclid(DAY));
            let of_day = seconds.rem_euclid(DAY) as u64;
            for (number, width, mark) in [
                (year, 4, b'-'),
                (month, 2, b'-'),
                (day, 2, b'T'),
                (of_day / 3600, 2, b':'),
                (of_day / 60 % 60, 2, b':'),
            ] {
                digits(&mut self.text, number, width);
                self.text.push(mark);
            }
            digits(&mut self.text, of_day % 60, 2);
        }
        Ok(&self.text)
    }

    /// Appends an entry's time. Returns whether it is a whole millisecond.
    pub fn write(&mut self, out: &mut Vec<u8>, given: &Item) -> Result<bool, Odd> {
        match *given {
            Item::Ext(0, content) => {
                let content: [u8; 8] = content.try_into().map_err(|_| Odd)?;
                let both = u64::from_be_bytes(content);
                let (seconds, nanoseconds) = ((both >> 32) as u32, both as u32);
                if seconds >= GROUP_END || nanoseconds >= 1_000_000_000 {
                    return Err(Odd);
                }
                out.extend_from_slice(self.second(i64::from(seconds))?);
                out.push(b'.');
                digits(out, u64::from(nanoseconds), 9);
                out.push(b'Z');
                Ok(nanoseconds % 1_000_000 == 0)
            }
            Item::Positive(seconds) if seconds > 0 => {
                out.extend_from_slice(self.second(i64::try_from(seconds).map_err(|_| Odd)?)?);
                out.push(b'Z');
                Ok(true)
            }
            Item::Float(seconds) => self.fractional(out, seconds),
            _ => Err(Odd),
        }
    }

    /// Seconds with the decimals of their shortest text, nine at most.
    fn fractional(&mut self, out: &mut Vec<u8>, seconds: f64) -> Result<bool, Odd> {
        if !(1.0..=LAST_SECOND as f64).contains(&seconds) {
            return Err(Odd);
        }
        let mut buffer = ryu::Buffer::new();
        let (whole, decimals) = buffer.format_finite(seconds).split_once('.').ok_or(Odd)?;
        out.extend_from_slice(self.second(whole.parse().map_err(|_| Odd)?)?);
        if !decimals.bytes().all(|each| each.is_ascii_digit()) {
            return Err(Odd);
        }
        let kept = decimals[..decimals.len().min(9)].trim_end_matches('0');
        if !kept.is_empty() {
            out.push(b'.');
            out.extend_from_slice(kept.as_bytes());
        }
        out.push(b'Z');
        Ok(kept.len() <= 3)
    }
}

/// Whether a text is RFC 3339 in UTC as `utc` of `headrace_common.record.json_object` leaves it: `2026-11-21T09:59:34.076Z`, with
/// nine decimals at most.
pub fn is_utc(text: &[u8]) -> bool {
    let Some((second, rest)) = text.split_at_checked(19) else { return false };
    let alike = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
    if !second.iter().zip(b"0000-00-00T00:00:00").all(alike) {
        return false;
    }
    let decimals = match rest {
        b"Z" => b"0",
        [b'.', decimals @ .., b'Z'] => decimals,
        _ => return false,
    };
    let number =
        |at: std::ops::Range<usize>| second[at].iter().fold(0, |all, digit| all * 10 + usize::from(digit - b'0'));
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + usize::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=9).contains(&decimals.len())
        && decimals.iter().all(u8::is_ascii_digit)
        && year > 0
        && (1..=days).contains(&day)
        && number(11..13) < 24
        && number(14..16) < 60
        && number(17..19) < 60
}

/// Year, month and day of a day counted from 1970-01-01: Howard Hinnant's `civil_from_days`. Only for years from 1 on.
fn date(days: i64) -> (u64, u64, u64) {
    let days = (days + 719_468) as u64; // from 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(given: Item) -> Result<(String, bool), Odd> {
        let mut out = Vec::new();
        let whole = Clock::default().write(&mut out, &given)?;
        Ok((String::from_utf8(out).expect("ASCII"), whole))
    }

    fn event_time(seconds: u32, nanoseconds: u32) -> [u8; 8] {
        (u64::from(seconds) << 32 | u64::from(nanoseconds)).to_be_bytes()
    }

    #[test]
    fn first_and_last_second() {
        let mut clock = Clock::default();
        assert_eq!(clock.second(FIRST_SECOND), Ok(&b"0001-01-01T00:00:00"[..]));
        assert_eq!(clock.second(LAST_SECOND), Ok(&b"9999-12-31T23:59:59"[..]));
        assert_eq!(clock.second(FIRST_SECOND - 1), Err(Odd));
        assert_eq!(clock.second(LAST_SECOND + 1), Err(Odd));
        assert_eq!(clock.second(951_782_400), Ok(&b"2000-02-29T00:00:00"[..]));
    }

    #[test]
    fn texts_in_utc() {
        let plain = "2026-11-21T09:59:34Z 2024-02-29T23:59:59.123456789Z 2000-02-29T00:00:00.0Z 0001-12-31T00:00:00Z";
        let odd = "2026-11-21T09:59:34 2026-11-21T09:59:34.Z 2026-11-21T09:59:34.1234567890Z 2026-11-21T09:59:34,1Z Z \
            2026-11-21t09:59:34Z 2026-11-21T09:59:34z 2026-11-21T09:59:34.1a2Z 2026-02-29T00:00:00Z 1900-02-29T00:00:00Z \
            2026-04-31T00:00:00Z 2026-13-01T00:00:00Z 2026-00-01T00:00:00Z 2026-01-00T00:00:00Z 2026-01-32T00:00:00Z \
            0000-01-01T00:00:00Z 2026-01-01T24:00:00Z 2026-01-01T00:60:00Z 2026-01-01T00:00:60Z 2O26-01-01T00:00:00Z";
        for (texts, expected) in [(plain, true), (odd, false)] {
            for text in texts.split(' ') {
                assert_eq!(is_utc(text.as_bytes()), expected, "{text}");
            }
        }
    }

    #[test]
    fn event_times() {
        let time = event_time(1_700_000_000, 5_000_000);
        assert_eq!(written(Item::Ext(0, &time)), Ok(("2023-11-14T22:13:20.005000000Z".into(), true)));
        let time = event_time(1_700_000_000, 1);
        assert_eq!(written(Item::Ext(0, &time)), Ok(("2023-11-14T22:13:20.000000001Z".into(), false)));
        for (seconds, nanoseconds) in [(GROUP_END, 0), (u32::MAX, 0), (1, 1_000_000_000)] {
            assert_eq!(written(Item::Ext(0, &event_time(seconds, nanoseconds))), Err(Odd));
        }
        assert_eq!(written(Item::Ext(1, &time)), Err(Odd));
        assert_eq!(written(Item::Ext(0, &time[1..])), Err(Odd));
    }

    #[test]
    fn numbers() {
        assert_eq!(written(Item::Positive(1_700_000_000)), Ok(("2023-11-14T22:13:20Z".into(), true)));
        assert_eq!(written(Item::Float(1_700_000_000.0)), Ok(("2023-11-14T22:13:20Z".into(), true)));
        assert_eq!(written(Item::Float(1_700_000_000.5)), Ok(("2023-11-14T22:13:20.5Z".into(), true)));
        assert_eq!(written(Item::Float(1.000_1)), Ok(("1970-01-01T00:00:01.0001Z".into(), false)));
        assert_eq!(written(Item::Float(1.123_456_789_9)), Ok(("1970-01-01T00:00:01.123456789Z".into(), false)));
        assert_eq!(written(Item::Float(1.000_000_000_5)), Ok(("1970-01-01T00:00:01Z".into(), true)));
        for odd in [Item::Positive(0), Item::Negative(-1), Item::Positive(u64::MAX), Item::Nil, Item::Float(0.0)] {
            assert_eq!(written(odd), Err(Odd));
        }
        for odd in [-1.5, f64::NAN, f64::INFINITY, 1e300, 0.5] {
            assert_eq!(written(Item::Float(odd)), Err(Odd));
        }
    }
}
