//! `anywire doctor`.

use std::io::BufRead;
use std::path::PathBuf;

use clap::Args;

use super::masters::{BadUrl, looked_at};
use super::{InputError, Inputs, Source, Switch};

/// What `anywire doctor` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// A host's code: says which way this computer would most likely reach it. Nobody is dialled.
    #[arg(value_name = "CODE")]
    code: Vec<String>,

    /// The password of a locked code; ANYWIRE_PASSWORD and --password-file work as well.
    #[arg(long, value_name = "PASSWORD", group = "password_from")]
    password: Option<String>,

    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE", group = "password_from")]
    password_file: Option<PathBuf>,

    /// Print everything as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show whole addresses. They tell where you live: do not post them.
    #[arg(long)]
    pub(crate) show_addresses: bool,

    /// Master server to look at, or "off" [default: ANYWIRE_MASTER, else off].
    #[arg(long, value_name = "URL")]
    rendezvous: Option<String>,

    /// UDP port to look from; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) local_port: u16,

    /// Ask the router to let others in, and take that back at the end [default: on; off where TPF2MP_STUN is off].
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) portmap: Option<Switch>,
}

impl DoctorArgs {
    /// The code as it was pasted; empty for none.
    pub(crate) fn code(&self) -> String {
        self.code.concat()
    }

    /// The master.
    ///
    /// # Errors
    /// [`BadUrl`] for what is neither an address nor `off`.
    pub(crate) fn master(&self) -> Result<Option<String>, BadUrl> {
        looked_at(self.rendezvous.as_deref())
    }

    /// The password, wherever it comes from.
    ///
    /// # Errors
    /// [`InputError`] for a file that cannot be read.
    pub(crate) fn password(&self, inputs: &mut Inputs<impl BufRead>) -> Result<Option<String>, InputError> {
        inputs.read(Source {
            what: "password",
            typed: self.password.clone(),
            file: self.password_file.clone(),
            stdin: false,
            env: std::env::var("ANYWIRE_PASSWORD").ok(),
        })
    }
}
