//! A store's options: those of its block, or those that a caller of the library gives; and the files that
//! they name.

use super::words::nginx::Files;
use crate::policy::options::OptionError;
use crate::store::registry::StoreSettings;

/// The settings of a store whose directives have these names and words, as a caller of the library gives
/// them.
///
/// # Errors
///
/// As of a `ratelimit_store` block. No message holds a password.
pub fn store_of_options(
    strategy: &[u8],
    options: &[(&[u8], &[u8])],
    files: &impl Files,
) -> Result<StoreSettings, OptionError> {
    let mut builder = StoreSettings::builder(|path| files.read(&files.path(path)));
    let strategy = builder.set(b"strategy", &[strategy]);
    strategy.map_err(|error| error.of("strategy"))?;
    for (name, word) in options {
        builder.set(name, &[word])?;
    }
    let mut settings = builder.finish()?;
    read_files(&mut settings, files)?;
    Ok(settings)
}

/// Reads the files that a store's directives name, and checks that connections can be made with them.
///
/// # Errors
///
/// The directive, and what is wrong with its file.
pub(super) fn read_files(
    settings: &mut StoreSettings,
    files: &impl Files,
) -> Result<(), OptionError> {
    for (directive, file) in settings.common.files_mut() {
        file.path = files.path(&file.path);
        let content = files.read(&file.path).map_err(|error| {
            let path = file.path.display();
            let message = format!("cannot read the file \"{path}\" of {directive} ({error})");
            OptionError::new(message).of(directive)
        })?;
        file.content = content.into();
    }
    let Some(tls) = &settings.common.tls else {
        return Ok(());
    };
    // Workers make the same of it: what they could not do is said now.
    let result = files.check_tls(tls);
    result.map_err(|error| OptionError::new(error.to_string()).of(error.directive()))
}
