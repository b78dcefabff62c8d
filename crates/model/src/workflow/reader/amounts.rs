//! Numbers, durations and sizes, each with the range that makes sense for its field.

use std::ops::RangeInclusive;

use super::{Field, Reader};
use crate::workflow::{node::Value, units};

impl Reader<'_> {
    pub(crate) fn whole(&mut self, field: &Field<'_>, range: RangeInclusive<u32>) -> Option<u32> {
        let found = match field.node.value {
            Value::Whole(value) => u32::try_from(value).ok(),
            _ => None,
        };
        let found = found.filter(|value| range.contains(value));
        if found.is_none() {
            let (least, most) = range.into_inner();
            self.expected(field, &format!("a whole number from {least} to {most}"));
        }
        found
    }

    /// A decimal number in `scale`th parts, from 1 such part to `most` whole ones.
    pub(crate) fn decimal(
        &mut self,
        field: &Field<'_>,
        scale: u32,
        most: u32,
        what: &str,
    ) -> Option<u64> {
        #[expect(clippy::cast_precision_loss, reason = "larger ones are refused below")]
        let value = match field.node.value {
            Value::Whole(value) => Some(value as f64),
            Value::Decimal(value) => Some(value),
            _ => None,
        };
        let parts = value.and_then(|value| units::scaled(value, scale));
        let range = 1..=u64::from(scale) * u64::from(most);
        let parts = parts.filter(|parts| range.contains(parts));
        if parts.is_none() {
            let form = format!("{what}: a number above 0, at most {most}, in steps of 1/{scale}");
            self.expected(field, &form);
        }
        parts
    }

    pub(crate) fn duration(
        &mut self,
        field: &Field<'_>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let read = self.unit(field, units::duration_ms, units::DURATION_FORM)?;
        self.within(field, read, range, units::write_duration)
    }

    pub(crate) fn size(&mut self, field: &Field<'_>, range: RangeInclusive<u64>) -> Option<u64> {
        let read = self.unit(field, units::size_bytes, units::SIZE_FORM)?;
        self.within(field, read, range, units::write_size)
    }

    fn unit(
        &mut self,
        field: &Field<'_>,
        read: fn(&str) -> Option<u64>,
        form: &str,
    ) -> Option<u64> {
        let value = match &field.node.value {
            Value::Text(text) => read(text),
            _ => None,
        };
        if value.is_none() {
            self.expected(field, form);
        }
        value
    }

    fn within(
        &mut self,
        field: &Field<'_>,
        value: u64,
        range: RangeInclusive<u64>,
        write: fn(u64) -> String,
    ) -> Option<u64> {
        if range.contains(&value) {
            return Some(value);
        }
        let (least, most) = range.into_inner();
        let (least, most, found) = (write(least), write(most), write(value));
        self.problem(field, format!("expected {least} to {most}, found {found}"));
        None
    }
}
