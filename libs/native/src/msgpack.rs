//! Reads msgpack headers from bytes of which nothing is known.

/// It is not on the plain path: incomplete, invalid, or something that Python writes with notes.
#[derive(Debug, PartialEq, Eq)]
pub struct Odd;

/// What begins at a position; of a text, bin or ext with the bytes of its content.
#[derive(Debug, PartialEq)]
pub enum Item<'a> {
    Nil,
    Bool(bool),
    Positive(u64),
    Negative(i64),
    Float(f64),
    Text(&'a [u8]),
    Bin(&'a [u8]),
    Array(usize),
    Map(usize),
    Ext(i8, &'a [u8]),
}

/// Bytes, and how many of them are read.
pub struct Input<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Input { data, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Odd> {
        let end = self.at.checked_add(count).ok_or(Odd)?;
        let taken = self.data.get(self.at..end).ok_or(Odd)?;
        self.at = end;
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, Odd> {
        Ok(self.take(width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn size(&mut self, width: usize) -> Result<usize, Odd> {
        usize::try_from(self.unsigned(width)?).map_err(|_| Odd)
    }

    fn signed(&mut self, width: usize) -> Result<Item<'a>, Odd> {
        let unused = 64 - 8 * width as u32;
        let number = (self.unsigned(width)? << unused) as i64 >> unused;
        Ok(if number < 0 { Item::Negative(number) } else { Item::Positive(number as u64) })
    }

    fn ext(&mut self, size: usize) -> Result<Item<'a>, Odd> {
        let code = self.unsigned(1)? as u8 as i8;
        Ok(Item::Ext(code, self.take(size)?))
    }

    /// Reads one header, and the content of what is no container.
    pub fn item(&mut self) -> Result<Item<'a>, Odd> {
        let first = self.unsigned(1)? as u8;
        Ok(match first {
            0x00..=0x7f => Item::Positive(u64::from(first)),
            0x80..=0x8f => Item::Map(usize::from(first & 0x0f)),
            0x90..=0x9f => Item::Array(usize::from(first & 0x0f)),
            0xa0..=0xbf => Item::Text(self.take(usize::from(first & 0x1f))?),
            0xc0 => Item::Nil,
            0xc1 => return Err(Odd),
            0xc2 => Item::Bool(false),
            0xc3 => Item::Bool(true),
            0xc4..=0xc6 => {
                let size = self.size(1 << (first - 0xc4))?;
                Item::Bin(self.take(size)?)
            }
            0xc7..=0xc9 => {
                let size = self.size(1 << (first - 0xc7))?;
                self.ext(size)?
            }
            0xca => Item::Float(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => Item::Float(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Item::Positive(self.unsigned(1 << (first - 0xcc))?),
            0xd0..=0xd3 => self.signed(1 << (first - 0xd0))?,
            0xd4..=0xd8 => self.ext(1 << (first - 0xd4))?,
            0xd9..=0xdb => {
                let size = self.size(1 << (first - 0xd9))?;
                Item::Text(self.take(size)?)
            }
            0xdc | 0xdd => Item::Array(self.size(if first == 0xdc { 2 } else { 4 })?),
            0xde | 0xdf => Item::Map(self.size(if first == 0xde { 2 } else { 4 })?),
            0xe0..=0xff => Item::Negative(i64::from(first as i8)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(data: &[u8]) -> Result<Item<'_>, Odd> {
        Input::new(data).item()
    }

    #[test]
    fn integers_of_every_width() {
        assert_eq!(only(&[0x7f]), Ok(Item::Positive(127)));
        assert_eq!(only(&[0xff]), Ok(Item::Negative(-1)));
        assert_eq!(only(&[0xd0, 0x80]), Ok(Item::Negative(-128)));
        assert_eq!(only(&[0xd1, 0x00, 0x05]), Ok(Item::Positive(5)));
        assert_eq!(only(&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]), Ok(Item::Negative(i64::MIN)));
        assert_eq!(only(&[0xcf, 255, 255, 255, 255, 255, 255, 255, 255]), Ok(Item::Positive(u64::MAX)));
    }

    #[test]
    fn a_length_that_announces_more_than_there_is() {
        for data in [
            &[0xdbu8, 255, 255, 255, 255, 1][..],
            &[0xc6, 255, 255, 255, 255],
            &[0xc9, 255, 255, 255, 255, 0],
            &[0xa5, 1],
            &[0xc1], // is never used
            &[],
        ] {
            assert_eq!(only(data), Err(Odd));
        }
        assert_eq!(only(&[0xdd, 255, 255, 255, 255]), Ok(Item::Array(u32::MAX as usize)));
    }

    #[test]
    fn an_ext_has_its_code_and_content() {
        assert_eq!(only(&[0xd7, 0, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(Item::Ext(0, &[1, 2, 3, 4, 5, 6, 7, 8])));
        assert_eq!(only(&[0xc7, 1, 0xff, 9]), Ok(Item::Ext(-1, &[9])));
    }
}
