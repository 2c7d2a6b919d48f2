// Host side of the kernels in this folder: one exported function, which launches a kernel by name.
#include "block_faults.cuh"
#include "cluster_faults.cuh"
#include "global_faults.cuh"
#include "ring_faults.cuh"
#include "shared_faults.cuh"
#include "transaction_faults.cuh"
#include "warp_faults.cuh"
#include "warpgroup_faults.cuh"

using namespace sm70_emulator;

namespace {

// One launch, with a cluster unless its size is 0; run returns true, so that a dispatcher can return what it
// ran.
struct Request {
    const char* kernel;
    dim3 grid, block;
    int shared_bytes, cluster_size;
    BufferList buffers;

    template <class T>
    T* pointer(int index) const {
        return static_cast<T*>(buffers.data[index].address);
    }
    template <class Body>
    bool run(Body body) const {
        if (cluster_size)
            launch(kernel, grid, block, shared_bytes, buffers, body, static_cast<uint32_t>(cluster_size));
        else
            launch(kernel, grid, block, shared_bytes, buffers, body);
        return true;
    }
    bool named(const char* name) const { return std::strcmp(kernel, name) == 0; }
};

bool run_shared(const Request& r) {
    if (r.named("exchange_in_block"))
        return r.run([&] { exchange_in_block(r.pointer<int>(0), r.pointer<int>(1)); });
    if (r.named("exchange_in_half_warps"))
        return r.run([&] { exchange_in_half_warps(r.pointer<int>(0), r.pointer<int>(1)); });
    if (r.named("staggered_readers")) return r.run([&] { staggered_readers(r.pointer<int>(0)); });
    if (r.named("mixed_widths"))
        return r.run([&] { mixed_widths(r.pointer<unsigned char>(0), r.pointer<unsigned char>(1)); });
    return false;
}

bool run_global(const Request& r) {
    if (r.named("copy_vectors"))
        return r.run([&] { copy_vectors(r.pointer<unsigned char>(0), r.pointer<unsigned char>(1)); });
    if (r.named("sum_by_last_block"))
        return r.run([&] {
            sum_by_last_block(
                r.pointer<int>(0), r.pointer<int>(1), r.pointer<unsigned>(2), r.pointer<int>(3));
        });
    if (r.named("read_back")) return r.run([&] { read_back(r.pointer<int>(0), r.pointer<int>(1)); });
    if (r.named("count_values"))
        return r.run([&] { count_values(r.pointer<int>(0), r.pointer<int>(1), r.pointer<float>(2)); });
    if (r.named("wait_for_flag")) return r.run([&] { wait_for_flag(r.pointer<unsigned>(0)); });
    return false;
}

template <int a_count, int b_count, int c_count, class Multiply>
bool run_product(const Request& r, Multiply multiply) {
    return r.run([&] {
        multiply_fragments<a_count, b_count, c_count>(
            r.pointer<uint32_t>(0), r.pointer<uint32_t>(1), r.pointer<float>(2), multiply);
    });
}

bool run_warp(const Request& r) {
    if (r.named("sum_half_warps"))
        return r.run([&] { sum_half_warps(r.pointer<float>(0), r.pointer<float>(1)); });
    if (r.named("nested_masks")) return r.run([&] { nested_masks(r.pointer<unsigned>(0)); });
    if (r.named("all_shuffles")) return r.run([&] { all_shuffles(r.pointer<int>(0), r.pointer<int>(1)); });
    if (r.named("m8n8k4"))
        return run_product<2, 2, 8>(r, [](auto& c, auto& a, auto& b) { mma_m8n8k4(c, a, b); });
    if (r.named("m16n8k8"))
        return run_product<2, 1, 4>(r, [](auto& c, auto& a, auto& b) { mma_m16n8k8(c, a, b); });
    if (r.named("m16n8k16"))
        return run_product<4, 2, 4>(r, [](auto& c, auto& a, auto& b) { mma_m16n8k16(c, a, b); });
    return false;
}

bool run_block_kernel(const Request& r) {
    if (r.named("count_threads")) return r.run([&] { count_threads(r.pointer<int>(0)); });
    if (r.named("early_exit")) return r.run([&] { early_exit(r.pointer<int>(0)); });
    if (r.named("only_barriers")) return r.run([&] { only_barriers(); });
    if (r.named("deep_stack")) return r.run([&] { deep_stack(r.pointer<int>(0)); });
    if (r.named("intrinsics"))
        return r.run([&] { intrinsics(r.pointer<uint32_t>(0), r.pointer<uint32_t>(1)); });
    return false;
}

bool run_sm90(const Request& r) {
    if (r.named("exchange_in_cluster"))
        return r.run([&] { exchange_in_cluster(r.pointer<float>(0), r.pointer<float>(1)); });
    if (r.named("sum_over_cluster"))
        return r.run([&] { sum_over_cluster(r.pointer<float>(0), r.pointer<float>(1)); });
    if (r.named("order_by_cluster"))
        return r.run([&] { order_by_cluster(r.pointer<int>(0), r.pointer<int>(1), r.pointer<int>(2)); });
    if (r.named("multiply_in_cluster")) return r.run([&] { multiply_in_cluster(r.pointer<float>(0)); });
    if (r.named("send_in_cluster"))
        return r.run([&] { send_in_cluster(r.pointer<float>(0), r.pointer<float>(1), r.pointer<float>(2)); });
    if (r.named("sum_copied_chunks"))
        return r.run([&] { sum_copied_chunks(r.pointer<int>(0), r.pointer<int>(1)); });
    if (r.named("add_after_previous"))
        return r.run([&] {
            add_after_previous(r.pointer<int>(0), r.pointer<int>(1), r.pointer<int>(2), r.pointer<int>(3));
        });
    return false;
}

template <int tokens>
bool run_warpgroup_product(const Request& r) {
    return r.run([&] {
        multiply_in_warpgroup<tokens>(r.pointer<uint32_t>(0), r.pointer<void>(1), r.pointer<float>(2));
    });
}

bool run_warpgroup(const Request& r) {
    if (r.named("multiply_8_tokens")) return run_warpgroup_product<8>(r);
    if (r.named("multiply_24_tokens")) return run_warpgroup_product<24>(r);
    if (r.named("multiply_128_tokens")) return run_warpgroup_product<128>(r);
    if (r.named("multiply_256_tokens")) return run_warpgroup_product<256>(r);
    if (r.named("multiply_ring") || r.named("multiply_ring_behind_copies"))
        return r.run([&] {
            multiply_ring(
                r.pointer<uint4>(0),
                r.pointer<uint4>(1),
                r.pointer<float>(2),
                r.pointer<unsigned>(3)[0],
                r.pointer<unsigned>(3)[1]);
        });
    if (r.named("send_to_all")) return r.run([&] { send_to_all(r.pointer<float>(0), r.pointer<float>(1)); });
    return false;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* run_fault_kernel(
    const Buffer* buffers,
    int count,
    const char* kernel,
    const char* fault,
    int grid_x,
    int grid_y,
    int grid_z,
    int block_x,
    int block_y,
    int block_z,
    int shared_bytes,
    int cluster_size) {
    return error_text_of([&] {
        active_fault = fault;
        const Request request{
            kernel,
            dim3(grid_x, grid_y, grid_z),
            dim3(block_x, block_y, block_z),
            shared_bytes,
            cluster_size,
            {buffers, count}};
        if (!run_shared(request) && !run_global(request) && !run_warp(request) &&
            !run_block_kernel(request) && !run_sm90(request) && !run_warpgroup(request))
            throw std::invalid_argument(std::string("no such kernel: ") + kernel);
    });
}
