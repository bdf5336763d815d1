//! `ban=` and `ban_after=`: the parameters of rules that ban rejected keys.

use crate::conf::words::parameter::Parameter;
use crate::conf::words::text::same;
use crate::policy::algorithm::Algorithm;
use crate::policy::fnv::fnv1a;
use crate::policy::hits::Hits;
use crate::policy::limit::{BanRule, Quota, QuotaHits};
use crate::policy::options::{OptionError, shown};
use crate::policy::window::WindowSize;

/// The most rejections before a ban.
const MAX_AFTER: i64 = 100_000;

/// Parses the two parameters of a rule of these words.
pub(super) fn parse(
    ban: Option<Parameter<'_>>,
    after: Option<Parameter<'_>>,
    words: &[&[u8]],
) -> Result<Option<BanRule>, OptionError> {
    let Some(ban) = ban else {
        return match after {
            None => Ok(None),
            Some(after) => Err(OptionError::new(format!(
                "parameter \"{}\" is of a ban: expected \"ban=time\" beside it",
                shown(after.word)
            ))),
        };
    };
    let size = WindowSize::parse(ban.value).ok().filter(|size| !size.is_of_calendar());
    let size = size.ok_or_else(|| ban.invalid("a ban is a time from 1ms to 366d, such as 10m"))?;
    let expected = "expected a whole number from 1 to 100000";
    let after = after.map(|after| {
        let number = core::str::from_utf8(after.value).ok().and_then(|it| it.parse().ok());
        let number = number.filter(|it| (1..=MAX_AFTER).contains(it));
        number.ok_or_else(|| after.invalid(expected))
    });
    let after = after.transpose()?.unwrap_or(1);
    let mut own: Vec<Vec<u8>> = words.iter().filter_map(|word| own_form(word)).collect();
    own.sort_unstable();
    let bytes = own.iter().flat_map(|word| word.iter().map(|byte| u64::from(*byte)).chain([256]));
    let hash = fnv1a(bytes);
    Ok(Some(BanRule {
        rules: (hash ^ hash >> 32) as u32,
        size,
        after: Hits::from_thousandths(after.saturating_mul(1000)),
    }))
}

/// Returns a word that is a part of the limits or the rejections of a rule, in the form that all words of this meaning
/// have; `None` for other words, and for defaults.
fn own_form(word: &[u8]) -> Option<Vec<u8>> {
    let parameter = Parameter::of(word)?;
    let (name, value) = (parameter.name(), parameter.value);
    let form = match name {
        b"limit" | b"rate" => Quota::parse(value).ok().map(|Quota { hits, size, .. }| match hits {
            QuotaHits::Constant(hits) => format!("{hits}/{size}").into_bytes(),
            QuotaHits::Variable(text) => [&*same(text), format!("/{size}").as_bytes()].concat(),
        }),
        b"burst" => Hits::parse(value).ok().map(|hits| hits.to_string().into_bytes()),
        b"window" if value == Algorithm::default().name().as_bytes() => return None,
        b"ban_after" if value == b"1" => return None,
        b"limits" | b"window" | b"tz" | b"ban_after" => None,
        _ => return None,
    };
    Some([name, b"=", form.as_deref().unwrap_or(value)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::rule::RuleText;

    fn ban(words: &[&str]) -> Result<Option<BanRule>, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        RuleText::parse(&words).map(|rule| rule.ban).map_err(|error| error.to_string())
    }

    #[test]
    fn a_ban_has_a_time_and_a_number_of_rejections() {
        assert_eq!(ban(&["limit=1/1s"]), Ok(None));
        let of = |words: &[&str]| ban(words).unwrap().map(|ban| (ban.size.millis(), ban.after));
        assert_eq!(of(&["limit=1/1s", "ban=10m"]), Some((600_000, Hits::ONE)));
        let after = Hits::from_thousandths(5000);
        assert_eq!(of(&["rate=1/1s", "ban_after=5", "ban=1ms"]), Some((1, after)));
    }

    #[test]
    fn rules_share_bans_if_their_limits_are_the_same() {
        let number = |words: &[&str]| ban(words).unwrap().unwrap().rules;
        let one = number(&["limit=1/1s", "limit=2/1m", "ban=10m"]);
        for same in [
            &["limit=2/1m", "limit=1/1s", "ban=10m"][..],
            &["limit=1/1s", "limit=2/1m", "ban=1h", "counter=c", "key=$k", "cost=2", "status=403"],
            &["limit=1.0/1000ms", "limit=2/60", "window=sliding", "ban_after=1", "ban=10m"],
        ] {
            assert_eq!(number(same), one, "{same:?}");
        }
        for other in [
            &["limit=1/1s", "ban=10m"][..],
            &["limit=1/1s", "limit=3/1m", "ban=10m"],
            &["limit=1/1s", "limit=2/1m", "window=fixed", "ban=10m"],
            &["limit=1/1s", "limit=2/1m", "ban_after=2", "ban=10m"],
            &["limit=1/1s", "limit=2/day", "ban=10m"],
        ] {
            assert_ne!(number(other), one, "{other:?}");
        }
    }

    #[test]
    fn an_error_says_what_is_accepted() {
        let after = "expected a whole number from 1 to 100000";
        for (words, message) in [
            (
                &["ban=0"][..],
                "invalid parameter \"ban=0\": a ban is a time from 1ms to 366d, such as 10m",
            ),
            (
                &["ban=day"],
                "invalid parameter \"ban=day\": a ban is a time from 1ms to 366d, such as 10m",
            ),
            (
                &["ban=$t"],
                "invalid parameter \"ban=$t\": a ban is a time from 1ms to 366d, such as 10m",
            ),
            (
                &["ban_after=5"],
                "parameter \"ban_after=5\" is of a ban: expected \"ban=time\" beside it",
            ),
            (&["ban=1m", "ban_after=0"], &format!("invalid parameter \"ban_after=0\": {after}")),
            (
                &["ban=1m", "ban_after=1.5"],
                &format!("invalid parameter \"ban_after=1.5\": {after}"),
            ),
            (&["ban=1m", "ban_after=-1"], &format!("invalid parameter \"ban_after=-1\": {after}")),
            (&["ban=1m", "ban_after=$n"], &format!("invalid parameter \"ban_after=$n\": {after}")),
            (
                &["ban=1m", "ban_after=100001"],
                &format!("invalid parameter \"ban_after=100001\": {after}"),
            ),
            (&["ban=1m", "ban=2m"], "parameter \"ban=2m\" is duplicate: expected it once"),
        ] {
            assert_eq!(ban(&[&["limit=1/1s"], words].concat()).unwrap_err(), message);
        }
    }
}
