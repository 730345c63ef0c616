//! Keystream and tags over whole frames, and the choice between the portable way and the processor's own.

use std::hint::black_box;

use sha2::block_api::compress256;

use crate::SessionKey;

/// Salt and counter.
pub(crate) const HEAD: usize = 8;
/// Half an HMAC-SHA256.
pub(crate) const TAG: usize = 16;

/// SHA-256's initial state (FIPS 180-4, section 5.3.3).
pub(crate) const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Bits of `enc_key | salt | counter | index`, as SHA-256 pads them.
pub(crate) const STREAM_BITS: u32 = 44 * 8;
/// Bits of the outer message of an HMAC: one key block and a digest.
pub(crate) const OUTER_BITS: u32 = 96 * 8;

/// Blocks of keystream made while a tag is checked; enough for a frame of 1,440 bytes.
const AHEAD: usize = 45;

/// Keystream computed next to a tag, before the tag is known to be right.
pub(crate) struct Ahead {
    pub(crate) blocks: [[u8; 32]; AHEAD],
    /// How many blocks, from index 0 on, belong to the frame at hand.
    pub(crate) ready: usize,
}

impl Ahead {
    pub(crate) const fn new() -> Self {
        Self { blocks: [[0; 32]; AHEAD], ready: 0 }
    }
}

/// Everything that depends on the key alone.
pub(crate) struct Cipher {
    encryption: [u8; 32],
    /// State after the block `mac_key XOR ipad`.
    inner: [u32; 8],
    /// State after the block `mac_key XOR opad`.
    outer: [u32; 8],
    #[cfg(target_arch = "x86_64")]
    kernel: Option<crate::x86::Kernel>,
}

impl Cipher {
    /// The fastest way this processor has.
    pub(crate) fn new(key: &SessionKey) -> Self {
        let cipher = Self::portable(key);
        #[cfg(target_arch = "x86_64")]
        let cipher = {
            let kernel = crate::x86::Kernel::detect(&cipher.encryption, &cipher.inner, &cipher.outer);
            Self { kernel, ..cipher }
        };
        cipher
    }

    /// The way that works everywhere; `sha2` still uses what SHA instructions it knows.
    pub(crate) fn portable(key: &SessionKey) -> Self {
        let authentication = key.authentication();
        let keyed = |pad: u8| {
            let mut block = [pad; 64];
            for (to, byte) in block.iter_mut().zip(authentication) {
                *to ^= byte;
            }
            let mut state = START;
            compress256(&mut state, &[block]);
            state
        };
        Self {
            encryption: key.encryption(),
            inner: keyed(0x36),
            outer: keyed(0x5c),
            #[cfg(target_arch = "x86_64")]
            kernel: None,
        }
    }

    /// Encrypts and tags `frame`: head, plaintext, room for the tag.
    pub(crate) fn seal(&self, frame: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = &self.kernel {
            return kernel.seal(frame);
        }
        let Some((data, tag)) = frame.split_last_chunk_mut::<TAG>() else { return };
        let Some((head, body)) = data.split_first_chunk_mut::<HEAD>() else { return };
        self.stream(*head, 0, body);
        *tag = self.finish(self.inner, data, data.len());
    }

    /// The tag of a sealed frame's head and ciphertext. Where that is cheap, `ahead` gets its keystream on the way.
    pub(crate) fn tag_sealed(&self, data: &[u8], ahead: &mut Ahead) -> [u8; TAG] {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = &self.kernel {
            return kernel.tag_sealed(data, ahead);
        }
        ahead.ready = 0;
        self.finish(self.inner, data, data.len())
    }

    /// The tag of a signed frame's head and body.
    pub(crate) fn tag_signed(&self, data: &[u8]) -> [u8; TAG] {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = &self.kernel {
            return kernel.tag_signed(data);
        }
        self.tag_signed_portably(data)
    }

    /// Decrypts the body of a frame with that head, first with what is `ahead`.
    pub(crate) fn decrypt(&self, head: [u8; HEAD], body: &mut [u8], ahead: &Ahead) {
        let (ready, _) = ahead.blocks.split_at_checked(ahead.ready).unwrap_or_default();
        let (now, later) = body.split_at_mut(body.len().min(ready.as_flattened().len()));
        xor(now, ready.as_flattened());
        if later.is_empty() {
            return;
        }
        let first = u32::try_from(ahead.ready).unwrap_or_default();
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = &self.kernel {
            return kernel.stream(head, first, later);
        }
        self.stream(head, first, later);
    }

    /// XORs the keystream from block `first` on into `body`.
    fn stream(&self, head: [u8; HEAD], first: u32, body: &mut [u8]) {
        // The message is shorter than a block: padded once, one compression for 32 bytes of keystream.
        let mut block = [0; 64];
        let fields: [&[u8]; 5] = [&self.encryption, &head, &[0; 4], &[0x80], &[0; 15]];
        for (to, byte) in block.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *byte;
        }
        put(&mut block, 60, STREAM_BITS);
        for (index, chunk) in (first..).zip(body.chunks_mut(32)) {
            put(&mut block, 40, index);
            let mut state = START;
            compress256(&mut state, std::slice::from_ref(&block));
            xor(chunk, &bytes(&state));
        }
    }

    fn tag_signed_portably(&self, data: &[u8]) -> [u8; TAG] {
        let total = SIGN.len() + data.len();
        let (block, rest) = sign_block(data);
        match rest {
            Some(rest) => {
                let mut state = self.inner;
                compress256(&mut state, &[block]);
                self.finish(state, rest, total)
            }
            None => self.finish(self.inner, block.get(..total).unwrap_or_default(), total),
        }
    }

    /// The tag of an inner message of `total` bytes that ends in `rest`, from the state before `rest`.
    fn finish(&self, mut state: [u32; 8], rest: &[u8], total: usize) -> [u8; TAG] {
        let (whole, rest) = rest.as_chunks::<64>();
        compress256(&mut state, whole);
        let (padded, count) = pad(rest, total);
        compress256(&mut state, padded.get(..count).unwrap_or_default());

        let mut last = [0; 64];
        for (to, byte) in last.iter_mut().zip(bytes(&state).iter().chain(&[0x80])) {
            *to = *byte;
        }
        put(&mut last, 60, OUTER_BITS);
        let mut state = self.outer;
        compress256(&mut state, &[last]);
        bytes(&state).first_chunk().copied().unwrap_or_default()
    }
}

/// What sets a signed frame's tag apart from a sealed one's.
const SIGN: &[u8; 4] = b"sign";

/// The first block of a signed frame's inner message, and what follows it; `None` when the message ends before the
/// block does.
pub(crate) fn sign_block(data: &[u8]) -> ([u8; 64], Option<&[u8]>) {
    let (start, rest) = match data.split_at_checked(64 - SIGN.len()) {
        Some((start, rest)) => (start, Some(rest)),
        None => (data, None),
    };
    let mut block = [0; 64];
    for (to, byte) in block.iter_mut().zip(SIGN.iter().chain(start)) {
        *to = *byte;
    }
    (block, rest)
}

/// The one or two last blocks of an inner HMAC message of `total` bytes that ends in `rest`, which is under a block.
pub(crate) fn pad(rest: &[u8], total: usize) -> ([[u8; 64]; 2], usize) {
    let mut blocks = [[0; 64]; 2];
    let flat = blocks.as_flattened_mut();
    if let Some(([at @ .., mark], _)) = flat.split_at_mut_checked(rest.len() + 1) {
        at.copy_from_slice(rest);
        *mark = 0x80;
    }
    let count = if rest.len() + 9 > 64 { 2 } else { 1 };
    // The key block counts.
    let bits = u64::try_from(total + 64).unwrap_or_default() << 3;
    if let Some(end) = flat.get_mut(count * 64 - 8..count * 64) {
        end.copy_from_slice(&bits.to_be_bytes());
    }
    (blocks, count)
}

/// Whether two tags are the same, in time that does not depend on where they differ.
pub(crate) fn same(a: &[u8; TAG], b: &[u8; TAG]) -> bool {
    black_box(u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)) == 0
}

fn put(block: &mut [u8; 64], at: usize, value: u32) {
    if let Some(field) = block.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

fn bytes(state: &[u32; 8]) -> [u8; 32] {
    let mut out = [0; 32];
    for (to, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *to = word.to_be_bytes();
    }
    out
}

fn xor(body: &mut [u8], keystream: &[u8]) {
    for (byte, key) in body.iter_mut().zip(keystream) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;

    const KEY: SessionKey = SessionKey::from_bytes([0x5A; 32]);

    /// A frame by the letter of the specification, from hash functions alone.
    fn by_the_letter(key: &SessionKey, head: [u8; HEAD], plain: &[u8]) -> Vec<u8> {
        let mut frame = head.to_vec();
        for (index, chunk) in (0u32..).zip(plain.chunks(32)) {
            let block = Sha256::new()
                .chain_update(key.encryption())
                .chain_update(head)
                .chain_update(index.to_be_bytes())
                .finalize();
            frame.extend(chunk.iter().zip(block).map(|(byte, key)| byte ^ key));
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(&key.authentication()).unwrap();
        mac.update(&frame);
        frame.extend(&mac.finalize().into_bytes()[..TAG]);
        frame
    }

    fn signed_by_the_letter(key: &SessionKey, data: &[u8]) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&key.authentication()).unwrap();
        mac.update(b"sign");
        mac.update(data);
        mac.finalize().into_bytes()[..TAG].to_vec()
    }

    /// Seals, opens and signs with one cipher and compares with the letter.
    fn check(cipher: &Cipher, head: [u8; HEAD], plain: &[u8]) {
        let want = by_the_letter(&KEY, head, plain);
        let mut frame = [&head, plain, &[0; TAG]].concat();
        cipher.seal(&mut frame);
        assert!(frame == want, "sealing {} bytes", plain.len());

        let mut ahead = Ahead::new();
        let (data, tag) = frame.split_last_chunk_mut::<TAG>().unwrap();
        assert!(cipher.tag_sealed(data, &mut ahead) == *tag, "tag of {} bytes", plain.len());
        cipher.decrypt(head, &mut data[HEAD..], &ahead);
        assert!(data[HEAD..] == *plain, "opening {} bytes", plain.len());

        let data = [&head, plain].concat();
        assert!(cipher.tag_signed(&data)[..] == signed_by_the_letter(&KEY, &data), "signing {} bytes", plain.len());
    }

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut dice = seam::Dice::new([u8::try_from(seed % 256).unwrap(); 32]);
        (0..len).map(|_| dice.bytes::<1>()[0]).collect()
    }

    #[test]
    fn both_ways_agree_with_the_letter_at_every_length() {
        for len in 0..1_500 {
            let plain = noise(len, len as u64);
            let head = *noise(HEAD, len as u64 + 7).first_chunk().unwrap();
            for cipher in [Cipher::portable(&KEY), Cipher::new(&KEY)] {
                check(&cipher, head, &plain);
            }
        }
    }

    #[test]
    fn frames_larger_than_any_datagram_of_a_game_agree_as_well() {
        for len in [1_439, 1_440, 1_441, 4_096, 8_191, 65_000] {
            for cipher in [Cipher::portable(&KEY), Cipher::new(&KEY)] {
                check(&cipher, [0xFF; HEAD], &noise(len, 3));
            }
        }
    }

    #[test]
    fn vectors_are_sealed_and_signed_to_the_byte() {
        let mut met = 0;
        for (group, field) in [("seal", "sealed"), ("sign", "signed")] {
            let folder = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/vectors/netpunch/{}"), group);
            for entry in std::fs::read_dir(folder).unwrap() {
                let vector: serde_json::Value =
                    serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
                let (inputs, Some(want)) = (&vector["inputs"], vector["expect"][field].as_str()) else { continue };
                let hex = |value: &serde_json::Value| {
                    data_encoding::HEXLOWER.decode(value.as_str().unwrap_or_default().as_bytes()).unwrap()
                };
                let key = match inputs["password"].as_str() {
                    Some(password) => SessionKey::derive(&hex(&inputs["secret"]).try_into().unwrap(), password),
                    None => SessionKey::from_bytes(hex(&inputs["session_key"]).try_into().unwrap()),
                };
                let counter = u32::try_from(inputs["counter"].as_u64().unwrap()).unwrap();
                let data = [&hex(&inputs["salt"])[..], &counter.to_be_bytes(), &hex(&inputs["plain"])].concat();
                for cipher in [Cipher::portable(&key), Cipher::new(&key)] {
                    let frame = if group == "sign" {
                        [&data[..], &cipher.tag_signed(&data)].concat()
                    } else {
                        let mut frame = [&data[..], &[0; TAG]].concat();
                        cipher.seal(&mut frame);
                        frame
                    };
                    assert_eq!(data_encoding::HEXLOWER.encode(&frame), want, "{}", vector["name"]);
                }
                met += 1;
            }
        }
        assert_eq!(met, 11);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn sha_instructions_are_used_where_the_processor_has_them() {
        assert_eq!(
            Cipher::new(&KEY).kernel.is_some(),
            is_x86_feature_detected!("sha") && is_x86_feature_detected!("avx")
        );
        assert!(Cipher::portable(&KEY).kernel.is_none());
    }

    #[test]
    fn tags_differ_when_any_bit_does() {
        let tag = [0xA5; TAG];
        assert!(same(&tag, &tag));
        for bit in 0..TAG * 8 {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!same(&tag, &other));
        }
    }

    proptest! {
        #[test]
        fn both_ways_agree_for_any_head_and_body(head: [u8; HEAD], plain in proptest::collection::vec(any::<u8>(), 0..300)) {
            for cipher in [Cipher::portable(&KEY), Cipher::new(&KEY)] {
                check(&cipher, head, &plain);
            }
        }
    }
}
