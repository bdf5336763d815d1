//! Numbers and times in the syntax of headers.

use crate::policy::hits::Hits;

/// The maximum number of digits of a number.
pub const MAX_DIGITS: usize = 20;

/// Returns the integer part of a number of hits.
pub fn whole(hits: Hits) -> u64 {
    hits.whole().unsigned_abs()
}

/// Returns the last digit of `number`.
fn digit(number: u64) -> u8 {
    b'0' | (number % 10) as u8
}

/// Writes `number` in decimal.
pub fn number(mut number: u64, put: &mut impl FnMut(&[u8])) {
    let mut digits = [0; MAX_DIGITS];
    let mut start = digits.len();
    for place in digits.iter_mut().rev() {
        *place = digit(number);
        start = start.saturating_sub(1);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    put(digits.get(start..).unwrap_or_default());
}

/// Writes `millis` as seconds with up to three decimals: `60`, `0.5`.
pub fn seconds(millis: u64, put: &mut impl FnMut(&[u8])) {
    number(millis / 1000, put);
    let rest = millis % 1000;
    if rest != 0 {
        let decimals = [b'.', digit(rest / 100), digit(rest / 10), digit(rest)];
        let zeros = decimals.iter().rev().take_while(|&&digit| digit == b'0');
        let len = decimals.len().saturating_sub(zeros.count());
        put(decimals.get(..len).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for value in [0, 7, 10, 123, u64::MAX] {
            let mut written = Vec::new();
            number(value, &mut |part| written.extend_from_slice(part));
            assert_eq!(written, value.to_string().as_bytes());
        }
    }
}
