// Fibers: one stack per CUDA thread and a cooperative switch between them.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#if !defined(__x86_64__) && !defined(SM70_EMULATOR_UCONTEXT)
#define SM70_EMULATOR_UCONTEXT
#endif
#ifdef SM70_EMULATOR_UCONTEXT
#include <ucontext.h>
#endif

namespace sm70_emulator {

#ifdef SM70_EMULATOR_UCONTEXT
struct Context {
    ucontext_t state;
};

inline void switch_context(Context& from, Context& to) {
    swapcontext(&from.state, &to.state);
}

inline void prepare_context(Context& context, unsigned char* low, unsigned char* high, void (*entry)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = low;
    context.state.uc_stack.ss_size = static_cast<size_t>(high - low);
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
}
#else
struct Context {
    void* stack_pointer = nullptr;
};

// System V x86-64: only the callee-saved registers have to survive a call. swapcontext would add two system
// calls.
extern "C" __attribute__((visibility("hidden"))) void sm70_emulator_switch(void** save, void* load);
asm(R"(
.text
.globl sm70_emulator_switch
.hidden sm70_emulator_switch
.type sm70_emulator_switch, @function
sm70_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sm70_emulator_switch, .-sm70_emulator_switch
)");

inline void switch_context(Context& from, Context& to) {
    sm70_emulator_switch(&from.stack_pointer, to.stack_pointer);
}

inline void prepare_context(Context& context, unsigned char*, unsigned char* high, void (*entry)()) {
    void** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(high) & ~uintptr_t{15});
    *--top = nullptr;  // the entry function's return address: it never returns
    *--top = reinterpret_cast<void*>(entry);
    for (int saved_register = 0; saved_register < 6; ++saved_register) *--top = nullptr;
    context.stack_pointer = top;
}
#endif

// Stacks for all threads of a block, kept between launches. Pages are committed by the system when first
// touched.
class StackPool {
  public:
    static constexpr size_t stack_bytes = 256 << 10;

    StackPool() = default;
    StackPool(const StackPool&) = delete;
    StackPool& operator=(const StackPool&) = delete;
    ~StackPool() { release(); }

    void reserve(size_t count) {
        if (count <= count_) return;
        release();
        // One stack more than asked for, below the first: an overflow of the first one is then found like any
        // other.
        void* region = mmap(
            nullptr,
            (count + 1) * stack_bytes,
            PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1,
            0);
        if (region == MAP_FAILED) throw std::bad_alloc();
        base_ = static_cast<unsigned char*>(region) + stack_bytes;
        count_ = count;
    }

    unsigned char* low(size_t index) const { return base_ + index * stack_bytes; }

    // Tops are staggered: stacks that start at the same offset of a page would share a few cache sets.
    unsigned char* high(size_t index) const { return low(index) + stack_bytes - (index * 1088) % 16384; }

    // The lowest word of each stack holds a mark; a fiber that ran over it used more than its stack.
    void mark(size_t index) const { *reinterpret_cast<uint64_t*>(low(index)) = mark_value; }
    bool intact(size_t index) const { return *reinterpret_cast<const uint64_t*>(low(index)) == mark_value; }

  private:
    static constexpr uint64_t mark_value = 0x5f37a59e0c1d2b48;

    void release() {
        if (base_) munmap(base_ - stack_bytes, (count_ + 1) * stack_bytes);
        base_ = nullptr;
        count_ = 0;
    }

    unsigned char* base_ = nullptr;
    size_t count_ = 0;
};

}  // namespace sm70_emulator
