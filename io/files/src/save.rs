//! A saved world as a player names it: the save and what lies beside it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use parcel::SAVE_NAMES;
use thiserror::Error;

/// What a save's script has to name, when there is one: without it the games that load the save do not play in step
/// (netpunch wire, section 9.8).
const MARK: &[u8] = b"[\"lockstep.lua\"]";
/// A larger script is not looked through.
const SCRIPT_MAX: u64 = 64 << 20;

/// Why a save is not sent. Each is one true sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SaveError {
    /// It is not there, or not to be read.
    #[error("the save {} cannot be read: {why}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// Its script does not name the one that keeps games in step.
    #[error("the save {} was made without the multiplayer script; load it, save it again and send that", .0.display())]
    NotInStep(PathBuf),
}

/// The files of the save at `path`, each with the name it travels under: the save, `<save>.lua` and the picture of the
/// same name, where they are there.
///
/// # Errors
/// [`SaveError`]; nothing was sent then.
pub fn save(path: &Path) -> Result<Vec<(PathBuf, String)>, SaveError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |why| SaveError::Unreadable { path, why }
    };
    let [name, script_name, picture_name] = SAVE_NAMES.map(str::to_owned);
    let is_file = File::open(path).and_then(|file| file.metadata()).map_err(unreadable(path))?.is_file();
    if !is_file {
        return Err(unreadable(path)(ErrorKind::InvalidInput.into()));
    }
    let mut all = vec![(path.to_owned(), name)];
    let mut script = path.as_os_str().to_owned();
    script.push(".lua");
    let script = PathBuf::from(script);
    match File::open(&script) {
        Ok(file) => {
            let mut text = Vec::new();
            file.take(SCRIPT_MAX).read_to_end(&mut text).map_err(unreadable(&script))?;
            if !text.windows(MARK.len()).any(|window| window == MARK) {
                return Err(SaveError::NotInStep(path.to_owned()));
            }
            all.push((script, script_name));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(&script)(error)),
    }
    let picture = path.with_extension("jpg");
    if picture.is_file() {
        all.push((picture, picture_name));
    }
    Ok(all)
}
