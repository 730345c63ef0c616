//! The format of sealed frames, straight from the hash crates.

use std::hint::black_box;

use hmac::{Hmac, KeyInit, Mac};
use seal::SessionKey;
use sha2::{Digest, Sha256};

/// The format as one writes it down with `sha2` and `hmac` at hand. It keeps no windows.
pub struct Rival {
    encryption: [u8; 32],
    authentication: [u8; 32],
    keyed: Option<Hmac<Sha256>>,
    counter: u32,
}

impl Rival {
    /// A rival; `keyed_once` keeps the keyed state of HMAC instead of making it for each frame.
    #[must_use]
    pub fn new(key: &SessionKey, keyed_once: bool) -> Self {
        let label = |label: &[u8]| -> [u8; 32] {
            Sha256::new().chain_update(key.as_bytes()).chain_update(label).finalize().into()
        };
        let authentication = label(b"|mac");
        let keyed = keyed_once.then(|| Hmac::new_from_slice(&authentication).unwrap());
        Self { encryption: label(b"|enc"), authentication, keyed, counter: 0 }
    }

    fn mac(&self, data: &[u8]) -> Hmac<Sha256> {
        let keyed = self.keyed.clone();
        let mut mac = keyed.unwrap_or_else(|| Hmac::new_from_slice(&self.authentication).unwrap());
        mac.update(data);
        mac
    }

    /// Seals `body` into `out` and says how long that is.
    pub fn seal(&mut self, body: &[u8], out: &mut [u8]) -> usize {
        self.counter += 1;
        let end = 8 + body.len();
        out[..4].copy_from_slice(b"salt");
        out[4..8].copy_from_slice(&self.counter.to_be_bytes());
        out[8..end].copy_from_slice(body);
        self.stream(&mut out[..end]);
        let tag = self.mac(&out[..end]).finalize().into_bytes();
        out[end..end + 16].copy_from_slice(&tag[..16]);
        end + 16
    }

    /// Opens a frame in place: its plaintext is `frame[8..len - 16]`. False when it is not authentic.
    pub fn open(&mut self, frame: &mut [u8]) -> bool {
        let (data, tag) = frame.split_at_mut(frame.len() - 16);
        let right = self.mac(data).verify_truncated_left(tag).is_ok();
        if right {
            self.stream(data);
        }
        black_box(right)
    }

    fn stream(&self, data: &mut [u8]) {
        let (head, body) = data.split_at_mut(8);
        for (index, chunk) in (0u32..).zip(body.chunks_mut(32)) {
            let block = Sha256::new()
                .chain_update(self.encryption)
                .chain_update(&*head)
                .chain_update(index.to_be_bytes())
                .finalize();
            for (byte, key) in chunk.iter_mut().zip(block) {
                *byte ^= key;
            }
        }
    }
}
