// What the V8 library does not export to the binding of the `v8` crate, and the helpers that the crate has no API for.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>
#include "v8-array-buffer.h"
#include "v8-initialization.h"
#include "v8-isolate.h"

void operator delete(void* p, std::size_t) noexcept { ::operator delete(p); }

// The five functions of libc++ that the binding needs and that the library keeps hidden.
_LIBCPP_BEGIN_NAMESPACE_STD
__shared_count::~__shared_count() {}
__shared_weak_count::~__shared_weak_count() {}
const void* __shared_weak_count::__get_deleter(const type_info&) const noexcept { return nullptr; }
void __shared_weak_count::__release_weak() noexcept {
  if (__atomic_load_n(&__shared_weak_owners_, __ATOMIC_ACQUIRE) == 0 ||
      __atomic_sub_fetch(&__shared_weak_owners_, 1, __ATOMIC_ACQ_REL) == -1)
    __on_zero_shared_weak();
}
unsigned thread::hardware_concurrency() noexcept {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 0 : unsigned(n);
}
template void basic_string<char>::__init_copy_ctor_external(const char*, size_t);
_LIBCPP_END_NAMESPACE_STD

namespace {
// Counts and bounds the bytes of array buffers. The memory itself must come from V8's own allocator: it lies inside
// V8's sandbox.
class LimitedAllocator final : public v8::ArrayBuffer::Allocator {
 public:
  explicit LimitedAllocator(size_t limit)
      : inner_(v8::ArrayBuffer::Allocator::NewDefaultAllocator()), limit_(limit) {}
  ~LimitedAllocator() override { delete inner_; }
  void* Allocate(size_t n) override { return Get(n, true); }
  void* AllocateUninitialized(size_t n) override { return Get(n, false); }
  void Free(void* p, size_t n) override {
    inner_->Free(p, n);
    used_.fetch_sub(n, std::memory_order_relaxed);
  }
  size_t MaxAllocationSize() const override {
    size_t most = inner_->MaxAllocationSize();
    return limit_ < most ? limit_ : most;
  }
  v8::PageAllocator* GetPageAllocator() override { return inner_->GetPageAllocator(); }

  size_t Used() const { return used_.load(std::memory_order_relaxed); }

 private:
  void* Get(size_t n, bool zero) {
    size_t before = used_.fetch_add(n, std::memory_order_relaxed);
    void* p = nullptr;
    if (n <= limit_ && before <= limit_ - n)
      p = zero ? inner_->Allocate(n) : inner_->AllocateUninitialized(n);
    if (!p) used_.fetch_sub(n, std::memory_order_relaxed);
    return p;
  }
  v8::ArrayBuffer::Allocator* inner_;
  size_t limit_;
  std::atomic<size_t> used_{0};
};
}  // namespace

extern "C" {
// The binding's own versions of these need parts of ICU that the library keeps hidden.
size_t icu_get_default_locale(char* out, size_t n) {
  if (n < 5) return 0;
  memcpy(out, "en-US", 5);
  return 5;
}
void icu_set_default_locale(const char*) {}
void udata_setCommonData_77(const unsigned char*, int* error) { *error = 0; }

bool bulkhead_v8_init_icu(const char* icudtl_path) { return v8::V8::InitializeICU(icudtl_path); }
v8::ArrayBuffer::Allocator* bulkhead_v8_limited_allocator(size_t limit) { return new LimitedAllocator(limit); }
size_t bulkhead_v8_limited_allocator_used(const v8::ArrayBuffer::Allocator* a) {
  return static_cast<const LimitedAllocator*>(a)->Used();
}
bool bulkhead_v8_sandbox_is_secure() { return v8::V8::IsSandboxConfiguredSecurely(); }
}
