// Tensor-core multiply-accumulate with f16 inputs and f32 accumulators, row.col. Element maps: PTX ISA,
// "Warp-level matrix instructions". Sums are IEEE f32 in order of k, added to C last; the hardware truncates,
// so low bits differ.
#pragma once
#include "emulator/collectives.h"

namespace sm70_emulator {

// Exact for every finite f16, subnormals included; infinities and NaN stay what they are.
inline float half_bits_to_float(uint32_t half) {
    const uint32_t magnitude = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
    float value;
    std::memcpy(&value, &magnitude, 4);
    value *= 0x1p112f;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (magnitude >= 0x0f800000u) bits = 0x7f800000u | (magnitude & 0x007fffffu);
    bits |= sign;
    std::memcpy(&value, &bits, 4);
    return value;
}

// Four independent 8x8x4 products, one per quad pair (lanes 4q..4q+3 and 4q+16..4q+19).
struct Shape8x8x4 {
    static constexpr Operation operation = Operation::mma_8x8x4;
    static constexpr int parts = 4, rows = 8, inner = 4, a_elements = 4, b_elements = 4, c_elements = 8;
    static constexpr int part(int lane) { return lane >> 2 & 3; }
    static constexpr int a_row(int lane, int) { return (lane & 3) + (lane >> 4) * 4; }
    static constexpr int a_inner(int, int i) { return i; }
    static constexpr int b_inner(int, int i) { return i; }
    static constexpr int b_column(int lane, int) { return (lane & 3) + (lane >> 4) * 4; }
    static constexpr int c_row(int lane, int i) { return (lane & 1) + (i & 2) + (lane >> 4) * 4; }
    static constexpr int c_column(int lane, int i) { return (i & 4) + (lane & 2) + (i & 1); }
};

template <int k>
struct Shape16x8 {
    static constexpr Operation operation = k == 8 ? Operation::mma_16x8x8 : Operation::mma_16x8x16;
    static constexpr int parts = 1, rows = 16, inner = k, a_elements = k / 2, b_elements = k / 4,
                         c_elements = 4;
    static constexpr int part(int) { return 0; }
    static constexpr int a_row(int lane, int i) { return (lane >> 2) + (i >> 1 & 1) * 8; }
    static constexpr int a_inner(int lane, int i) { return (lane & 3) * 2 + (i & 1) + (i >> 2) * 8; }
    static constexpr int b_inner(int lane, int i) { return (lane & 3) * 2 + (i & 1) + (i >> 1) * 8; }
    static constexpr int b_column(int lane, int) { return lane >> 2; }
    static constexpr int c_row(int lane, int i) { return (lane >> 2) + (i >> 1) * 8; }
    static constexpr int c_column(int lane, int i) { return (lane & 3) * 2 + (i & 1); }
};

struct Fragments {
    float* c;
    const uint32_t* a;
    const uint32_t* b;
};

inline float fragment_element(const uint32_t* registers, int i) {
    return half_bits_to_float(registers[i >> 1] >> (16 * (i & 1)) & 0xffffu);
}

template <class Shape>
void complete_mma(Warp& warp, uint32_t) {
    float a[Shape::parts][Shape::rows][Shape::inner], b[Shape::parts][Shape::inner][8];
    for (int lane = 0; lane < 32; ++lane) {
        const Fragments& given = *static_cast<const Fragments*>(warp.lanes[lane].call.input);
        const int part = Shape::part(lane);
        for (int i = 0; i < Shape::a_elements; ++i)
            a[part][Shape::a_row(lane, i)][Shape::a_inner(lane, i)] = fragment_element(given.a, i);
        for (int i = 0; i < Shape::b_elements; ++i)
            b[part][Shape::b_inner(lane, i)][Shape::b_column(lane, i)] = fragment_element(given.b, i);
    }
    float sums[Shape::parts][Shape::rows][8] = {};
    for (int part = 0; part < Shape::parts; ++part)
        for (int row = 0; row < Shape::rows; ++row)
            for (int inner = 0; inner < Shape::inner; ++inner)
                for (int column = 0; column < 8; ++column)
                    sums[part][row][column] += a[part][row][inner] * b[part][inner][column];
    for (int lane = 0; lane < 32; ++lane) {
        float* c = static_cast<const Fragments*>(warp.lanes[lane].call.input)->c;
        for (int i = 0; i < Shape::c_elements; ++i)
            c[i] += sums[Shape::part(lane)][Shape::c_row(lane, i)][Shape::c_column(lane, i)];
    }
}

template <class Shape>
void mma(float* c, const uint32_t* a, const uint32_t* b, Site site) {
    const Fragments fragments{c, a, b};
    Call call;
    call.operation = Shape::operation;
    call.mask = ~0u;
    call.input = &fragments;
    call.site = site;
    collective(call, complete_mma<Shape>);
}

inline void mma_m8n8k4(
    float (&c)[8], const uint32_t (&a)[2], const uint32_t (&b)[2], Site site = Site::here()) {
    mma<Shape8x8x4>(c, a, b, site);
}

inline void mma_m16n8k8(
    float (&c)[4], const uint32_t (&a)[2], const uint32_t (&b)[1], Site site = Site::here()) {
    mma<Shape16x8<8>>(c, a, b, site);
}

inline void mma_m16n8k16(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site = Site::here()) {
    mma<Shape16x8<16>>(c, a, b, site);
}

}  // namespace sm70_emulator
