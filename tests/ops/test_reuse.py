import gc

from grass_gnn.ops import native
from grass_gnn.ops.native import clear_memory, reused_memory

ROWS = native.SMALLEST_REUSED // 4 // 16


def test_memory_of_a_tensor_that_is_gone_is_used_again():
    clear_memory()
    tensor = reused_memory(ROWS, 16)
    address = tensor.data_ptr()
    view = tensor[1:]
    del tensor
    gc.collect()
    assert reused_memory(ROWS, 16).data_ptr() != address  # a view still lives
    clear_memory()
    del view
    gc.collect()
    assert reused_memory(ROWS, 16).data_ptr() == address


def test_memory_that_does_not_fit_is_given_back():
    clear_memory()
    reused_memory(4 * ROWS, 16)
    tensor = reused_memory(ROWS, 16)
    assert not native._free
    assert tensor.shape == (ROWS, 16)


def test_two_at_once_do_not_interfere():
    first, second = reused_memory(ROWS, 16).fill_(1), reused_memory(ROWS, 16).fill_(2)
    assert (first == 1).all()
    assert (second == 2).all()
