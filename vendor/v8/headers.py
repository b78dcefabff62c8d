"""Makes the crate's V8 headers (14.5) fit the library's V8 (14.4): headers.py CRATE OUT.

OUT gets `include/` (the changed headers), `binding.cc` (without two functions that `shim.cc` replaces) and
`src_binding.rs`. Every edit asserts that it found what it changes, so another version fails here and not at run time.
"""

import re
import shutil
import sys
from pathlib import Path

crate, out = Path(sys.argv[1]), Path(sys.argv[2])
include = out / "include"
shutil.copytree(crate / "v8/include", include)


class Text:
    def __init__(self, path):
        self.path, self.text = path, path.read_text()

    def replace(self, old, new):
        assert self.text.count(old) == 1, (self.path, old, self.text.count(old))
        self.text = self.text.replace(old, new)

    def replace_between(self, start, end, new):
        """Replaces from `start` up to, not including, the next `end`."""
        i = self.text.index(start)
        j = self.text.index(end, i)
        self.text = self.text[:i] + new + self.text[j:]

    def write(self, path=None):
        (path or self.path).write_text(self.text)


# 14.4 has no Platform::CreateBoostablePriorityScope; with it, all later slots of the vtable would be off by one.
platform = Text(include / "v8-platform.h")
platform.text, edits = re.subn(
    r"  virtual std::unique_ptr<ScopedBoostablePriority>\s+CreateBoostablePriorityScope\(\) \{\s+return nullptr;\s+\}\n",
    "",
    platform.text,
)
assert edits == 1
platform.write()

# In 14.4 the flag "fully constructed" of a cppgc object's header is bit 0, not bit 15.
constants = Text(include / "cppgc/internal/api-constants.h")
constants.replace(
    "kFullyConstructedBitMask = uint16_t{1} << 15;", "kFullyConstructedBitMask = uint16_t{1};"
)
constants.write()

# 14.4 passes (implicit_args, values, length) to function callbacks and an array of eight slots to property
# callbacks; the headers of 14.5 read the exit frame instead.
callback = Text(include / "v8-function-callback.h")
callback.replace("kIsolateValueIndex = -1;", "kIsolateValueIndex = -2;")
at = callback.text.index("class FunctionCallbackInfo {")
head, callback.text = callback.text[:at], callback.text[at:]
callback.replace_between(
    "  enum {\n",
    "  static_assert(ReturnValue",
    "  enum { kUnusedIndex, kIsolateIndex, kContextIndex, kReturnValueIndex, kTargetIndex, kNewTargetIndex };\n",
)
callback.replace_between(
    "  internal::Address* address_of_first_argument()",
    "  // FunctionCallbackInfo object provides",
    "  V8_INLINE FunctionCallbackInfo() = default;\n",
)
callback.replace(
    "  mutable internal::Address values_[1];",
    "  internal::Address* implicit_args_;\n  internal::Address* values_;\n  internal::Address length_;",
)
callback.replace_between(
    "    kPropertyKeyIndex,",
    "    kFullArgsLength,",
    "    kPropertyKeyIndex, kShouldThrowOnErrorIndex, kHolderIndex, kIsolateIndex, kUnusedIndex, kReturnValueIndex,\n"
    "    kCallbackInfoIndex, kThisIndex, kFirstOptionalArgument, kFirstApiArgumentIndex = 0, kFrameTypeIndex = 0,\n",
)
callback.replace("&values_[kFirstJSArgumentIndex + i]", "values_ + i")
callback.replace("&values_[kReceiverIndex]", "values_ - 1")
callback.replace_between(
    "  if (IsConstructCall()) {",
    "}\n\ntemplate",
    "  return Local<Value>::FromSlot(&implicit_args_[kNewTargetIndex]);\n",
)
callback.replace("&values_[kTargetIndex]", "&implicit_args_[kTargetIndex]")
callback.replace(
    "reinterpret_cast<Isolate*>(values_[kIsolateIndex])",
    "reinterpret_cast<Isolate*>(implicit_args_[kIsolateIndex])",
)
callback.replace("&values_[kReturnValueIndex]", "&implicit_args_[kReturnValueIndex]")
callback.replace(
    "return I::SmiValue(values_[kFrameTypeIndex]) == I::kFrameTypeApiConstructExit;",
    "return !NewTarget()->IsUndefined();",
)
callback.replace("static_cast<int>(values_[kArgcIndex])", "static_cast<int>(length_)")
callback.replace("  if constexpr (!HasShouldThrowOnError()) return false;\n", "")
callback.text = head + callback.text
callback.write()

# The two ICU functions of the binding need what the library hides: `shim.cc` has them.
binding = Text(crate / "src/binding.cc")
start = binding.text.index("size_t icu_get_default_locale(")
end = binding.text.index("\n}", binding.text.index("void icu_set_default_locale(", start)) + 2
binding.text = binding.text[:start] + binding.text[end:]
binding.write(out / "binding.cc")

# With V8's sandbox a buffer has at most 32 GiB - 1 bytes.
rust = Text(crate / "gen/src_binding_ptrcomp_release_x86_64-unknown-linux-gnu.rs")
limit, unbounded = 32 * 2**30 - 1, 2**53 - 1
for size in (1, 2, 4, 8):
    rust.text, edits = re.subn(
        r"(kMax(?:Byte)?Length: usize = )%d;" % (unbounded // size),
        lambda match, size=size: f"{match.group(1)}{limit // size};",
        rust.text,
    )
    assert edits > 0, size
rust.write(out / "src_binding.rs")
