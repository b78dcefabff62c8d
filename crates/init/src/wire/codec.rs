//! Bytes for numbers, strings, lists, records and choices; no more than the messages need.

/// A message that does not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a message between the sandbox's processes is malformed")
    }
}

impl std::error::Error for Malformed {}

/// A value with a form on the wire.
pub trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut &[u8]) -> Result<Self, Malformed>;
}

pub fn encode<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    value.put(&mut out);
    out
}

/// Reads a whole message: bytes left over are an error too.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut rest = bytes;
    let value = T::get(&mut rest)?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(Malformed)
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    let (head, tail) = from.split_at_checked(count).ok_or(Malformed)?;
    *from = tail;
    Ok(head)
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl Wire for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(from: &mut &[u8]) -> Result<Self, Malformed> {
                let bytes = take(from, size_of::<Self>())?;
                bytes.try_into().map(Self::from_le_bytes).map_err(|_| Malformed)
            }
        }
    )*};
}

number!(u8, u16, u32, u64, i32);

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        // A list that does not fit is cut by nobody: `MESSAGE_MAX` is far below `u32::MAX`.
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        for item in self {
            item.put(out);
        }
    }

    fn get(from: &mut &[u8]) -> Result<Self, Malformed> {
        let count = u32::get(from)?;
        // Nothing is reserved for a count that the message merely claims.
        (0..count).map(|_| T::get(from)).collect()
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().to_vec().put(out);
    }

    fn get(from: &mut &[u8]) -> Result<Self, Malformed> {
        Self::from_utf8(Vec::get(from)?).map_err(|_| Malformed)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok((A::get(from)?, B::get(from)?))
    }
}

/// A struct whose fields follow one another.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $kind),* }

        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(from: &mut &[u8]) -> Result<Self, $crate::wire::Malformed> {
                Ok(Self { $($field: $crate::wire::Wire::get(from)?),* })
            }
        }
    };
}

/// An enum: its tag, then the variant's fields.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$variant_meta:meta])* $tag:literal => $variant:ident { $($field:ident: $kind:ty),* $(,)? }),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant { $($field: $kind),* }),* }

        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($tag);
                        $($field.put(out);)*
                    })*
                }
            }

            fn get(from: &mut &[u8]) -> Result<Self, $crate::wire::Malformed> {
                match u8::get(from)? {
                    $($tag => Ok(Self::$variant { $($field: $crate::wire::Wire::get(from)?),* }),)*
                    _ => Err($crate::wire::Malformed),
                }
            }
        }
    };
}

pub(super) use {choice, record};

#[cfg(test)]
mod tests {
    use super::*;

    record!(
        #[expect(unreachable_pub, reason = "the macro serves the crate's public types")]
        Pair { name: String, values: Vec<(u32, Vec<u8>)> });
    choice!(
        #[expect(unreachable_pub, reason = "the macro serves the crate's public types")]
        Either { 1 => Left { pair: Pair }, 2 => Right {} });

    #[test]
    fn values_survive_the_wire() {
        let pair = Pair {
            name: "ä".to_owned(),
            values: vec![(7, vec![0, 255]), (u32::MAX, vec![])],
        };
        for value in [Either::Left { pair }, Either::Right {}] {
            assert_eq!(decode::<Either>(&encode(&value)), Ok(value));
        }
    }

    #[test]
    fn every_cut_and_every_surplus_is_malformed() {
        let whole = encode(&Pair {
            name: "n".to_owned(),
            values: vec![(1, vec![2, 3])],
        });
        for length in 0..whole.len() {
            assert_eq!(decode::<Pair>(&whole[..length]), Err(Malformed));
        }
        let surplus = [&whole[..], &[0]].concat();
        assert_eq!(decode::<Pair>(&surplus), Err(Malformed));
        assert_eq!(decode::<Either>(&[9]), Err(Malformed));
    }

    #[test]
    fn a_claimed_length_reserves_nothing() {
        assert_eq!(decode::<Vec<u64>>(&u32::MAX.to_le_bytes()), Err(Malformed));
    }
}
