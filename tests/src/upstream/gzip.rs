//! gzip of many repetitions of one text: a small body that unpacks to a large one.
//!
//! One block of fixed Huffman codes: the text as literals, then matches of the longest length (258 bytes in 13 bits or
//! a little more) that reach back by the length of the text. Never a general compressor.

/// Longest match of the format, in bytes.
const MATCH_MAX: usize = 258;

/// Longest distance of the format, in bytes.
const DISTANCE_MAX: usize = 32 * 1024;

/// The gzip file whose content is `text`, `n` times.
///
/// # Panics
/// When the text is empty or longer than 32 KiB.
pub(super) fn gzip_repeat(text: &[u8], n: usize) -> Vec<u8> {
    assert!(!text.is_empty() && text.len() <= DISTANCE_MAX, "a text of 1 to {DISTANCE_MAX} bytes");
    let total = text.len() * n;
    let mut bits = Bits { bytes: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], held: 0, count: 0 };
    bits.low_first(1, 1); // the last block
    bits.low_first(1, 2); // fixed codes
    let mut written = 0;
    while written < total {
        if written >= text.len() && total - written >= MATCH_MAX {
            bits.code(285);
            bits.distance(text.len());
            written += MATCH_MAX;
        } else {
            bits.code(u32::from(text[written % text.len()]));
            written += 1;
        }
    }
    bits.code(256);
    let mut bytes = bits.finish();
    bytes.extend(crc32(text, n).to_le_bytes());
    bytes.extend(u32::try_from(total & 0xffff_ffff).unwrap_or_default().to_le_bytes());
    bytes
}

struct Bits {
    bytes: Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits {
    fn low_first(&mut self, value: u32, width: u32) {
        self.held |= u64::from(value) << self.count;
        self.count += width;
        while self.count >= 8 {
            self.bytes.push((self.held & 0xff) as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn high_first(&mut self, value: u32, width: u32) {
        self.low_first(value.reverse_bits() >> (32 - width), width);
    }

    /// A symbol of the fixed literal and length code (RFC 1951, 3.2.6).
    fn code(&mut self, symbol: u32) {
        match symbol {
            0..=143 => self.high_first(0x30 + symbol, 8),
            144..=255 => self.high_first(0x190 + symbol - 144, 9),
            256..=279 => self.high_first(symbol - 256, 7),
            _ => self.high_first(0xc0 + symbol - 280, 8),
        }
    }

    /// A distance: five bits of code, then its extra bits (RFC 1951, 3.2.5).
    fn distance(&mut self, distance: usize) {
        let d = u32::try_from(distance - 1).unwrap_or_default();
        if d < 4 {
            self.high_first(d, 5);
            return;
        }
        let extra = d.ilog2() - 1;
        self.high_first(2 * (extra + 1) + ((d >> extra) & 1), 5);
        self.low_first(d & ((1 << extra) - 1), extra);
    }

    fn finish(mut self) -> Vec<u8> {
        self.low_first(0, (8 - self.count) % 8);
        self.bytes
    }
}

/// CRC-32 of `text`, `n` times.
fn crc32(text: &[u8], n: usize) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(u32::try_from(i).unwrap_or_default(), |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 })
    });
    let step = |crc: u32, byte: &u8| table[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8);
    !(0..n).fold(u32::MAX, |crc, _| text.iter().fold(crc, step))
}
