#!/usr/bin/env python3
"""nvrtc.py LIBNVRTC SOURCE OPTION... - compiles CUDA C++ with the NVRTC library at LIBNVRTC; PTX on standard output."""

import ctypes
import os
import sys


def main():
    library, source, *options = sys.argv[1:]
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(name, *arguments):
        code = getattr(nvrtc, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {nvrtc.nvrtcGetErrorString(code).decode()}")

    def text(size_of, get):
        size = ctypes.c_size_t()
        call(size_of, program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        call(get, program, buffer)
        return buffer.value.decode()

    with open(source, "rb") as file:
        code = file.read()
    program = ctypes.c_void_p()
    call("nvrtcCreateProgram", ctypes.byref(program), code, os.path.basename(source).encode(), 0, None, None)
    try:
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        call("nvrtcCompileProgram", program, len(options), arguments)
    except RuntimeError as error:
        sys.exit(f"{source}: {error}\n{text('nvrtcGetProgramLogSize', 'nvrtcGetProgramLog')}")
    sys.stdout.write(text("nvrtcGetPTXSize", "nvrtcGetPTX"))


main()
