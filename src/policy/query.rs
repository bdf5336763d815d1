//! The query of a request: its arguments, as in nginx's variables `$arg_name`.

/// Returns the value of the first argument `name` that has one: not decoded, possibly empty. The case of `name` is
/// ignored; it must not contain `&`.
///
/// Finds the same argument as nginx's `ngx_http_arg`.
#[inline]
pub fn argument<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
    let mut rest = query;
    loop {
        if let Some(value) = after_name(rest, name) {
            return value.split(is_separator).next();
        }
        let end = rest.iter().position(is_separator)?;
        rest = rest.get(end.wrapping_add(1)..)?;
    }
}

/// Returns the text after `name=` at the beginning of `query`.
#[inline]
fn after_name<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
    let (start, rest) = query.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b"=")?;
    // Names are short, so bytes are compared one by one.
    let mut pairs = start.iter().zip(name);
    let is_named = pairs.all(|(one, other)| one.eq_ignore_ascii_case(other));
    is_named.then_some(value)
}

#[inline]
fn is_separator(byte: &u8) -> bool {
    *byte == b'&'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_argument_with_a_value_is_found() {
        for (query, expected) in [
            ("", None),
            ("k", None),
            ("k&", None),
            ("k=", Some("")),
            ("k=&k=2", Some("")),
            ("k=1", Some("1")),
            ("K=1", Some("1")),
            ("k=1&K=2", Some("1")),
            ("k&k=2", Some("2")),
            ("kk=1&k=2", Some("2")),
            ("a=k=1&k=2", Some("2")),
            ("a=1&k=2&b=3", Some("2")),
            ("&&k=1", Some("1")),
            ("k=1=2", Some("1=2")),
            ("k=%26?k", Some("%26?k")),
            ("a=k=1", None),
            ("a=1;k=2", None),
            ("=1", None),
            ("%6b=1", None),
        ] {
            let found = argument(query.as_bytes(), b"k");
            assert_eq!(found, expected.map(str::as_bytes), "{query}");
        }
        assert_eq!(argument(b"a_b=1&a_BC=2", b"A_bc"), Some(&b"2"[..]));
    }
}
