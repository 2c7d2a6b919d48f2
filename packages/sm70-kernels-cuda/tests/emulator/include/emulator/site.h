// Where in the kernel's source an operation stands, and the one exception type that the emulator throws.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

namespace sm70_emulator {

// Source line of the call, taken through default arguments: void f(Site site = Site::here()).
struct Site {
    const char* file = nullptr;
    int line = 0;

    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return Site{file, line};
    }
    bool operator==(const Site& other) const {
        return line == other.line &&
               (file == other.file || (file && other.file && !std::strcmp(file, other.file)));
    }
    bool operator!=(const Site& other) const { return !(*this == other); }

    // " (kernel.cuh:12)", or nothing where the error has no line of its own.
    std::string text() const {
        if (!file) return "";
        const char* slash = std::strrchr(file, '/');
        return std::string(" (") + (slash ? slash + 1 : file) + ":" + std::to_string(line) + ")";
    }
};

class KernelError : public std::runtime_error {
  public:
    explicit KernelError(const std::string& text) : std::runtime_error(text) {}
};

// printf into a std::string; messages longer than the buffer are cut.
__attribute__((format(printf, 1, 2))) inline std::string format(const char* pattern, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
    va_end(arguments);
    return buffer;
}

// Names of the set bits: "0-15,31".
inline std::string lane_list(uint32_t mask) {
    std::string text;
    for (int first = 0; first < 32; ++first) {
        if (!(mask >> first & 1)) continue;
        int last = first;
        while (last < 31 && (mask >> (last + 1) & 1)) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(first);
        if (last > first) text += "-" + std::to_string(last);
        first = last;
    }
    return text;
}

}  // namespace sm70_emulator
