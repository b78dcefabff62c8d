//! AES in CBC mode, decrypting only, as webhooks of old services need it.

use std::hint::black_box;

use aws_lc_rs::{
    cipher::{AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, UnboundCipherKey},
    iv::FixedLength,
};
use bulkhead_engine::{Thrown, Value};

use super::{
    arguments::{Arguments, Form},
    failed,
};

const BLOCK: usize = 16;

/// `aesCbcDecrypt(key, iv, data, encoding?)`. Whatever is wrong with the data, the error is the same, and so is the
/// time: else whoever may try many could read without the key.
pub(super) fn aes_cbc_decrypt(arguments: &Arguments) -> Result<Value, Thrown> {
    let key = arguments.only_bytes(0, "key")?;
    let iv = arguments.only_bytes(1, "iv")?;
    let data = arguments.only_bytes(2, "data")?;
    let form = arguments.form(3, Form::Bytes)?;
    let algorithm = match key.len() {
        16 => &AES_128,
        24 => &AES_192,
        32 => &AES_256,
        _ => return Err(arguments.wrong("key", "16, 24 or 32 bytes long")),
    };
    let Ok(iv) = <[u8; BLOCK]>::try_from(&iv[..]) else {
        return Err(arguments.wrong("iv", "16 bytes long"));
    };
    let cannot = || failed("host.crypto.aesCbcDecrypt: the data cannot be decrypted");
    if data.is_empty() || data.len() % BLOCK != 0 {
        return Err(cannot());
    }
    let mut data = data.to_vec();
    let plain = UnboundCipherKey::new(algorithm, &key)
        .and_then(DecryptingKey::cbc)
        .and_then(|key| {
            let context = DecryptionContext::Iv128(FixedLength::from(iv));
            key.decrypt(&mut data, context).map(|plain| plain.len())
        });
    let len = plain.map_err(|_| cannot())?;
    let len = unpadded_len(&data[..len]).ok_or_else(cannot)?;
    data.truncate(len);
    arguments.give(data, form)
}

/// How much of the data stands before its padding (PKCS #7), looking at the whole last block whatever is in it.
fn unpadded_len(data: &[u8]) -> Option<usize> {
    let block = data.last_chunk::<BLOCK>()?;
    let padding = block[BLOCK - 1];
    // One bit for each thing that is wrong; no branch depends on what the bytes are.
    let mut wrong = is_less(padding, 1) | is_less(16, padding);
    for (back, byte) in (1u8..).zip(block.iter().rev()) {
        let is_padding = !is_less(padding, back) & 1;
        wrong |= mask(is_padding) & (byte ^ padding);
    }
    (black_box(wrong) == 0).then(|| data.len() - usize::from(padding))
}

/// 1 where `a < b`, else 0.
fn is_less(a: u8, b: u8) -> u8 {
    let difference = black_box(u16::from(a)).wrapping_sub(u16::from(b));
    difference.to_be_bytes()[0] >> 7
}

/// All bits of 1, or none of 0.
fn mask(bit: u8) -> u8 {
    0u8.wrapping_sub(bit)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, unpadded_len};

    /// C1: of the sixteen right paddings each is found, and nothing else is one.
    #[test]
    fn c1_only_what_is_padding_is_padding() {
        for padding in 0..=255u8 {
            let mut block = [0xee; 2 * BLOCK];
            let len = usize::from(padding);
            if len <= BLOCK {
                block[2 * BLOCK - len..].fill(padding);
            } else {
                block[BLOCK..].fill(padding);
            }
            let right = (1..=16).contains(&padding).then(|| 2 * BLOCK - len);
            assert_eq!(unpadded_len(&block), right, "{padding}");
            for at in 1..len.min(BLOCK) {
                let mut block = block;
                block[2 * BLOCK - 1 - at] ^= 1;
                assert_eq!(unpadded_len(&block), None, "{padding} {at}");
            }
        }
    }
}
