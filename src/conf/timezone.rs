//! `ratelimit_timezone`: the time zone of a level. A file of its own, since rules refer to the zone of their level
//! while the configuration is read, before it is known.

use core::cell::Cell;
use std::rc::Rc;

use crate::conf::words::message::ConfError;
use crate::conf::words::parameter::{invalid, one_word, set_once};
use crate::policy::calendar::CalendarZone;

/// The time zone of a level, known once the whole configuration was read.
#[derive(Clone, Debug, Default)]
pub(super) struct LevelZone(Rc<ZoneOfLevel>);

#[derive(Debug, Default)]
struct ZoneOfLevel {
    own: Cell<Option<&'static CalendarZone>>,
    /// The enclosing level; `None` for `http`.
    around: Option<LevelZone>,
}

impl LevelZone {
    /// Creates the zone of a level within another one.
    pub(super) fn within(around: &LevelZone) -> LevelZone {
        LevelZone(Rc::new(ZoneOfLevel { own: Cell::new(None), around: Some(around.clone()) }))
    }

    /// Reads `ratelimit_timezone name`.
    pub(super) fn set(&self, words: &[&[u8]]) -> Result<(), ConfError> {
        let word = one_word(words, "expected the name of a time zone, such as Europe/Berlin")?;
        let zone =
            CalendarZone::named(word).map_err(|error| invalid("zone", word, &error.to_string()))?;
        let mut own = self.0.own.get();
        set_once(&mut own, zone)?;
        self.0.own.set(own);
        Ok(())
    }

    /// Returns the zone of the level, or of the nearest level around it that has one; UTC without any.
    pub(super) fn get(&self) -> &'static CalendarZone {
        let LevelZone(level) = self;
        level
            .own
            .get()
            .unwrap_or_else(|| level.around.as_ref().map_or(CalendarZone::utc(), LevelZone::get))
    }

    /// Whether the level is `http`.
    pub(super) fn is_outermost(&self) -> bool {
        self.0.around.is_none()
    }
}
