// The GPU's side of the checked memory accesses: the same names over plain pointers, without checks.
#pragma once

template <class T>
__device__ __forceinline__ T load_global(const void* pointer) {
    return *reinterpret_cast<const T*>(pointer);
}

template <class T>
__device__ __forceinline__ void store_global(void* pointer, T value) {
    *reinterpret_cast<T*>(pointer) = value;
}

__device__ __forceinline__ unsigned char* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
    return dynamic_shared_bytes;
}

template <class T>
class SharedSpan {
  public:
    __device__ __forceinline__ SharedSpan(unsigned char* base, unsigned count)
        : data_(reinterpret_cast<T*>(base)), count_(count) {}
    __device__ __forceinline__ unsigned size() const { return count_; }
    __device__ __forceinline__ T load(unsigned index) const { return data_[index]; }
    __device__ __forceinline__ void store(unsigned index, T value) const { data_[index] = value; }
    __device__ __forceinline__ T& operator[](unsigned index) const { return data_[index]; }
    template <class V>
    __device__ __forceinline__ V load_vector(unsigned index) const {
        return *reinterpret_cast<const V*>(data_ + index);
    }
    template <class V>
    __device__ __forceinline__ void store_vector(unsigned index, V value) const {
        *reinterpret_cast<V*>(data_ + index) = value;
    }
    __device__ __forceinline__ SharedSpan subspan(unsigned first, unsigned count) const {
        return SharedSpan(reinterpret_cast<unsigned char*>(data_ + first), count);
    }

  private:
    T* data_;
    unsigned count_;
};
