//! Namespaces: named settings under which hits are counted.

/// The namespace that is meant where none is named.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The longest name of a zone, store or namespace, in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// Whether `name` may name a zone, a store or a namespace: `[A-Za-z0-9_.-]{1,64}` and not `off`.
pub fn is_valid_name(name: &[u8]) -> bool {
    (1..=MAX_NAME_LEN).contains(&name.len())
        && name != b"off"
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["default", "a", "A-1_b.c", &"x".repeat(64)] {
            assert!(is_valid_name(name.as_bytes()), "{name}");
        }
        for name in ["", "off", "a b", "a:b", "ä", "a/b", &"x".repeat(65)] {
            assert!(!is_valid_name(name.as_bytes()), "{name}");
        }
    }
}
