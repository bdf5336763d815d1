//! Windows of the calendar in questions. The script decides by the server's clock, and knows no time zones: it is sent
//! the windows at the time that the server told last, and asks for others if these have ended or not begun.

use redis::Value;

use super::answer::{self, RedisAnswer};
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::Question;

/// The sizes of questions that are windows of the calendar, each once.
#[derive(Debug, Default)]
pub(super) struct CalendarSizes(Vec<WindowSize>);

impl CalendarSizes {
    /// Number of attempts to find the windows at the server's time. After the first one, that time is known; further ones
    /// are for windows that end at this moment, or servers of a cluster whose clocks differ.
    pub(super) const ATTEMPTS: usize = 4;

    pub(super) fn of(questions: &[Question]) -> CalendarSizes {
        let mut sizes = Vec::new();
        for counter in questions.iter().flat_map(|it| &it.counters) {
            if counter.size.is_of_calendar() && !sizes.contains(&counter.size) {
                sizes.push(counter.size);
            }
        }
        CalendarSizes(sizes)
    }

    /// Returns the script's numbers for each size at `now`: the size, the number of the window, its start and end, and the
    /// end of the next one.
    pub(super) fn at(&self, now: UnixMillis) -> impl Iterator<Item = i64> {
        let CalendarSizes(sizes) = self;
        sizes.iter().flat_map(move |size| {
            let number = size.at(now).number;
            let next = size.end_of(number.saturating_add(1));
            let numbers =
                [size.bits(), number, size.start_of(number).0, size.end_of(number).0, next.0];
            numbers.map(u64::cast_signed)
        })
    }

    /// Returns the server's time if the script has only told that, since it needs the windows at that time.
    pub(super) fn time_of(answer: &Value) -> Option<UnixMillis> {
        match answer {
            Value::Array(parts) => match parts.as_slice() {
                [seconds, micros] => {
                    let number = |part: &Value| RedisAnswer(part.clone()).number();
                    answer::unix_millis(number(seconds)?, number(micros)?)
                }
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::algorithm::Algorithm;
    use crate::policy::calendar::{CalendarUnit, CalendarZone};
    use crate::testing::conformance::question;

    #[test]
    fn each_window_of_the_calendar_is_told_once() {
        let berlin = CalendarZone::named(b"Europe/Berlin").unwrap();
        let day = WindowSize::of_calendar(CalendarUnit::Day, berlin);
        let mut questions: Vec<_> =
            ["a", "b", "c"].map(|key| question(key, Algorithm::Fixed, 5)).into();
        for question in &mut questions[1..] {
            question.counters[0].size = day;
        }
        let sizes = CalendarSizes::of(&questions);
        // 2024-10-27 has 25 hours.
        let (start, hour) = (1_729_980_000_000, 3_600_000);
        let (end, next) = (start + 25 * hour, start + 49 * hour);
        for now in [start, start + hour, end - 1] {
            let told: Vec<_> = sizes.at(UnixMillis(now)).map(i64::cast_unsigned).collect();
            assert_eq!(told, [day.bits(), 20023, start, end, next]);
        }
    }

    #[test]
    fn an_answer_of_two_parts_is_a_time() {
        let part = |text: &str| Value::BulkString(text.into());
        let time = |parts: &[&str]| {
            CalendarSizes::time_of(&Value::Array(parts.iter().map(|text| part(text)).collect()))
        };
        assert_eq!(time(&["5", "7000"]), Some(UnixMillis(5007)));
        for parts in [&["5"][..], &["5", "x"], &["5", "7000", "1"], &[]] {
            assert_eq!(time(parts), None);
        }
        assert_eq!(CalendarSizes::time_of(&Value::Int(5)), None);
    }
}
