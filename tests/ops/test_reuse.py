import gc

from grass_gnn.ops import reuse

ROWS = reuse.SMALLEST // 4 // 16


def test_memory_of_a_tensor_that_is_gone_is_used_again():
    reuse.clear()
    tensor = reuse.empty(ROWS, 16)
    address = tensor.data_ptr()
    view = tensor[1:]
    del tensor
    gc.collect()
    assert reuse.empty(ROWS, 16).data_ptr() != address  # a view still lives
    reuse.clear()
    del view
    gc.collect()
    assert reuse.empty(ROWS, 16).data_ptr() == address


def test_memory_that_does_not_fit_is_given_back():
    reuse.clear()
    reuse.empty(4 * ROWS, 16)
    tensor = reuse.empty(ROWS, 16)
    assert not reuse._free
    assert tensor.shape == (ROWS, 16)


def test_two_at_once_are_apart():
    first, second = reuse.empty(ROWS, 16).fill_(1), reuse.empty(ROWS, 16).fill_(2)
    assert (first == 1).all()
    assert (second == 2).all()
